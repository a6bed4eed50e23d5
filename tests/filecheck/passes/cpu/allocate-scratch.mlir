// RUN: %nova-opt %s --allocate-scratch | %filecheck %s

// What a tile allocates for itself becomes an argument behind the range of tiles, at an offset that is
// a multiple of 64; what is small or not in the first block stays.
// CHECK-LABEL: func.func private @k(
// CHECK-SAME: %{{.*}}: memref<8xf32>, %{{.*}}: index, %{{.*}}: index, %[[A:.*]]: memref<257xf32>, %[[B:.*]]: memref<512xbf16>)
// CHECK-SAME: nova.scratch_offsets = array<i64: 0, 1088>
// CHECK: %[[SMALL:.*]] = memref.alloca() : memref<255xf32>
// CHECK-NOT: memref.alloca() : memref<257xf32>
// CHECK: scf.for
// CHECK: memref.alloca() : memref<300xf32>
// CHECK: memref.store %{{.*}}, %[[A]][
// CHECK: memref.store %{{.*}}, %[[SMALL]][
// CHECK: memref.store %{{.*}}, %[[B]][
func.func private @k(%x: memref<8xf32>, %begin: index, %end: index) attributes {nova.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %v = arith.constant 1.0 : f32
  %h = arith.constant 1.0 : bf16
  %a = memref.alloca() {alignment = 64 : i64} : memref<257xf32>
  %s = memref.alloca() : memref<255xf32>
  %b = memref.alloca() : memref<512xbf16>
  scf.for %i = %begin to %end step %c1 {
    %inner = memref.alloca() : memref<300xf32>
    memref.store %v, %inner[%c0] : memref<300xf32>
    memref.store %v, %a[%c0] : memref<257xf32>
    memref.store %v, %s[%c0] : memref<255xf32>
    memref.store %h, %b[%c0] : memref<512xbf16>
  }
  return
}

// Other functions keep theirs, and so do kernels that have none.
// CHECK-LABEL: func.func private @other()
// CHECK: memref.alloca() : memref<1024xf32>
func.func private @other() {
  %a = memref.alloca() : memref<1024xf32>
  return
}
// CHECK-LABEL: func.func private @none(
// CHECK-SAME: %{{.*}}: index, %{{.*}}: index) attributes {nova.kernel}
func.func private @none(%begin: index, %end: index) attributes {nova.kernel} {
  return
}
