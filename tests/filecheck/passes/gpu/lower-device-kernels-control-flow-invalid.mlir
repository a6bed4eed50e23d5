// RUN: not %nova-opt %s --lower-device-kernels 2>&1 | %filecheck %s

// CHECK: error: @k holds scf.while that computes whole tensors, which a device cannot run
// CHECK: run pin-control-flow first
func.func private @k(%x: memref<i1>) attributes {nova.grid = array<i64>, nova.kernel} {
  scf.while : () -> () {
    %0 = memref.load %x[] : memref<i1>
    scf.condition(%0)
  } do {
    scf.yield
  }
  return
}
func.func @main(%s: memref<0xi8>) {
  return
}
