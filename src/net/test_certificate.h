// For the TLS tests: a self-signed certificate for 127.0.0.1 and localhost, and a probe of TLS versions.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

namespace headrace {

struct CertificateFiles {
  std::string cert_file;
  std::string key_file;
};

inline CertificateFiles MakeSelfSignedCertificate(const std::string& folder) {
  std::filesystem::create_directories(folder);
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const cert = X509_new();
  X509_set_version(cert, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
  X509_gmtime_adj(X509_getm_notBefore(cert), -60);
  X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
  X509_set_pubkey(cert, key);
  X509_NAME* const name = X509_get_subject_name(cert);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(cert, name);
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, cert, cert, nullptr, nullptr, 0);
  X509_EXTENSION* const names =
      X509V3_EXT_conf_nid(nullptr, &context, NID_subject_alt_name, "IP:127.0.0.1,DNS:localhost");
  X509_add_ext(cert, names, -1);
  X509_EXTENSION_free(names);
  X509_sign(cert, key, EVP_sha256());

  const CertificateFiles files{folder + "/cert.pem", folder + "/key.pem"};
  FILE* out = fopen(files.cert_file.c_str(), "w");
  PEM_write_X509(out, cert);
  fclose(out);
  out = fopen(files.key_file.c_str(), "w");
  PEM_write_PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr);
  fclose(out);
  X509_free(cert);
  EVP_PKEY_free(key);
  return files;
}

// The version agreed on with a client that speaks exactly `version`; 0: none.
inline int NegotiatedTlsVersion(uint16_t port, int version) {
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_security_level(context, 0);  // else the library itself refuses the old ones
  SSL_CTX_set_min_proto_version(context, version);
  SSL_CTX_set_max_proto_version(context, version);
  SSL* const ssl = SSL_new(context);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int agreed = 0;
  if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) {
    SSL_set_fd(ssl, fd);
    if (SSL_connect(ssl) == 1) agreed = SSL_version(ssl);
  }
  SSL_free(ssl);
  SSL_CTX_free(context);
  close(fd);
  return agreed;
}

}  // namespace headrace
