// RUN: not %nova-opt %s --lower-device-kernels 2>&1 | %filecheck %s

// CHECK: error: @k is lowered already
func.func private @k(%x: memref<4xf32>) attributes {nova.grid = array<i64>, nova.kernel, nova.launch = array<i64: 1, 32, 0>} {
  return
}
func.func @main(%s: memref<0xi8>) {
  return
}
