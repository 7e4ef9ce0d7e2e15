// Goal: the key is made once, for the owner alone, outside of the cache; whoever reads it gets the same derived keys; a
// key that is no secret or no key is refused; and HKDF is RFC 5869's.
#include "kv_tier/deployment_key.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace headrace {
namespace {

namespace fs = std::filesystem;

class DeploymentKeyTest : public ::testing::Test {
 protected:
  DeploymentKeyTest() : folder_(fs::path(::testing::TempDir()) / ("key" + std::to_string(getpid()))) {}
  ~DeploymentKeyTest() override { fs::remove_all(folder_); }
  std::string path() const { return folder_ / "state" / "deployment.key"; }
  void Write(const std::string& text) const {
    fs::create_directories(folder_ / "state");
    std::ofstream(path()) << text;
    fs::permissions(path(), fs::perms::owner_read);
  }
  const fs::path folder_;
};

std::string Derived(const DeploymentKey& key, std::string_view label, std::string_view info = "") {
  std::string out(32, '\0');
  key.Derive(label, info, std::as_writable_bytes(std::span(out)));
  return out;
}

TEST_F(DeploymentKeyTest, IsMadeOnceForTheOwnerAlone) {
  const auto made = DeploymentKey::LoadOrMake(path(), folder_ / "cache");
  ASSERT_TRUE(made) << made.error().message;
  const auto again = DeploymentKey::LoadOrMake(path(), folder_ / "cache");
  ASSERT_TRUE(again);
  EXPECT_EQ(Derived(*made, "a"), Derived(*again, "a"));
  struct stat info{};
  ASSERT_EQ(stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "state"), {}), 1) << "nothing is left beside it";
}

TEST_F(DeploymentKeyTest, ProcessesThatMakeItAtOnceGetTheSame) {
  int results[2];
  ASSERT_EQ(pipe(results), 0);
  constexpr int kProcesses = 8;
  for (int i = 0; i < kProcesses; ++i) {
    if (fork() != 0) continue;
    const auto key = DeploymentKey::LoadOrMake(path(), "");
    const std::string derived = key ? Derived(*key, "a") : std::string(32, static_cast<char>(i));
    _exit(write(results[1], derived.data(), derived.size()) == 32 ? 0 : 1);
  }
  std::set<std::string> all;
  for (int i = 0; i < kProcesses; ++i) {
    std::string derived(32, '\0');
    ASSERT_EQ(read(results[0], derived.data(), derived.size()), 32);
    all.insert(derived);
    wait(nullptr);
  }
  EXPECT_EQ(all, std::set{Derived(*DeploymentKey::LoadOrMake(path(), ""), "a")});
}

TEST_F(DeploymentKeyTest, EachUseHasAKeyOfItsOwn) {
  const DeploymentKey key = DeploymentKey::Draw(), other = DeploymentKey::Draw();
  const std::set<std::string> all = {Derived(key, "a"), Derived(key, "b"), Derived(key, "a", "x"), Derived(key, "ax"),
                                     Derived(other, "a")};
  EXPECT_EQ(all.size(), 5u);
}

TEST_F(DeploymentKeyTest, IsHkdfOfRfc5869) {
  // HMAC-SHA256 by hand in Python: extract with salt "headrace", expand with "kv\0info", from a secret of 00 01 .. 1f.
  Write("headrace-key-1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n");
  const auto key = DeploymentKey::LoadOrMake(path(), "");
  ASSERT_TRUE(key) << key.error().message;
  std::string hex;
  for (const unsigned char c : Derived(*key, "kv", "info")) {
    char text[3];
    std::snprintf(text, sizeof(text), "%02x", c);
    hex += text;
  }
  EXPECT_EQ(hex, "55eb28b4c21a9d083ca8658146ee46aa7c4008aac24c84b9f76c9012d7475174");
}

TEST_F(DeploymentKeyTest, WhatIsNoSecretOrNoKeyIsRefused) {
  EXPECT_EQ(DeploymentKey::LoadOrMake(folder_ / "cache" / "deployment.key", folder_ / "cache").error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(DeploymentKey::LoadOrMake(folder_ / "cache" / ".." / "cache" / "k", folder_ / "cache").error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(DeploymentKey::LoadOrMake("", "").error().code, ErrorCode::kInvalidArgument);
  for (const char* text : {"", "secret", "headrace-key-1 00", "headrace-key-2 00"}) {
    fs::remove_all(folder_);
    Write(text);
    EXPECT_EQ(DeploymentKey::LoadOrMake(path(), "").error().code, ErrorCode::kCorruptData) << text;
  }
  fs::remove_all(folder_);
  Write("headrace-key-1 " + std::string(DeploymentKey::kFileBytesMax, '0'));
  EXPECT_EQ(DeploymentKey::LoadOrMake(path(), "").error().code, ErrorCode::kTooLarge);
  fs::remove_all(folder_);
  ASSERT_TRUE(DeploymentKey::LoadOrMake(path(), ""));
  fs::permissions(path(), fs::perms::owner_read | fs::perms::group_read);
  const auto open = DeploymentKey::LoadOrMake(path(), "");
  EXPECT_EQ(open.error().code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(open.error().field, "cache-key-file");
  fs::permissions(path(), fs::perms::owner_read);
}

}  // namespace
}  // namespace headrace
