// CHECK: a bug of ours stops the process and prints the operands. Bytes from outside never reach one; they are Results.
// DCHECK is the same in debug builds only, for hot loops.
#pragma once

#include <sstream>
#include <string>

namespace headrace {

[[noreturn]] void CheckFailed(const char* file, int line, const std::string& what);

template <typename A, typename B>
[[noreturn]] void CheckOpFailed(const char* file, int line, const char* expr, const A& a, const B& b) {
  std::ostringstream out;
  out << expr << " (" << a << " vs " << b << ")";
  CheckFailed(file, line, out.str());
}

}  // namespace headrace

#define HR_CHECK_OP(a, b, op)                                                       \
  do {                                                                              \
    const auto hr_a = (a); /* a copy: std::min gives a reference to a temporary */  \
    const auto hr_b = (b);                                                          \
    if (!(hr_a op hr_b)) [[unlikely]]                                               \
      ::headrace::CheckOpFailed(__FILE__, __LINE__, #a " " #op " " #b, hr_a, hr_b); \
  } while (0)
#define CHECK(cond)                                       \
  do {                                                    \
    if (!(cond)) [[unlikely]]                             \
      ::headrace::CheckFailed(__FILE__, __LINE__, #cond); \
  } while (0)
#define CHECK_EQ(a, b) HR_CHECK_OP(a, b, ==)
#define CHECK_NE(a, b) HR_CHECK_OP(a, b, !=)
#define CHECK_LT(a, b) HR_CHECK_OP(a, b, <)
#define CHECK_LE(a, b) HR_CHECK_OP(a, b, <=)
#define CHECK_GT(a, b) HR_CHECK_OP(a, b, >)
#define CHECK_GE(a, b) HR_CHECK_OP(a, b, >=)
#ifdef NDEBUG
#define DCHECK(cond) ((void)0)
#else
#define DCHECK(cond) CHECK(cond)
#endif
