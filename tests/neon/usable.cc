// The kernel tables that this processor can run, by name, the best one last.
#include <cstdio>

#include "kernels/kernel_table.h"

int main() {
  for (const headrace::KernelTable* table : headrace::UsableKernels()) std::puts(table->name);
  return 0;
}
