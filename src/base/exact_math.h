// Elementary functions whose bits are the same on every machine: plain IEEE double operations in a fixed order, no
// libm (whose results change with the CPU that glibc picks its variant for). For tables made at load time and for the
// few scalars of sampling; accurate to about 1e-15 relative, checked against libm in the tests.
#pragma once

namespace headrace {

double ExactExp(double x);                      // any finite x; 0 below -745, inf above 709
double ExactLog(double x);                      // x > 0
double ExactPow(double base, double exponent);  // base > 0
// |x| <= 2^30.
void ExactSinCos(double x, double* sine, double* cosine);

}  // namespace headrace
