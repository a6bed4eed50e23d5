// RUN: not %nova-opt %s --form-kernels 2>&1 | %filecheck %s

// CHECK: error: the module has no function @main
func.func @f() {
  return
}
