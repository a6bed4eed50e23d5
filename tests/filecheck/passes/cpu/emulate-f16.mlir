// RUN: %nova-opt %s --emulate-f16 | %filecheck %s

// CHECK-LABEL: func.func @widen
// CHECK: arith.bitcast %{{.*}} : f16 to i16
// CHECK: arith.extui %{{.*}} : i16 to i32
// CHECK: arith.select
// CHECK: arith.bitcast %{{.*}} : i32 to f32
// CHECK-NOT: arith.extf
func.func @widen(%x: f16) -> f32 {
  %0 = arith.extf %x : f16 to f32
  return %0 : f32
}

// CHECK-LABEL: func.func @narrow
// CHECK: arith.bitcast %{{.*}} : vector<4xf32> to vector<4xi32>
// CHECK: arith.trunci %{{.*}} : vector<4xi32> to vector<4xi16>
// CHECK-NOT: arith.truncf
func.func @narrow(%x: vector<4xf32>) -> vector<4xf16> {
  %0 = arith.truncf %x : vector<4xf32> to vector<4xf16>
  return %0 : vector<4xf16>
}

// bf16 has a pass of its own upstream.
// CHECK-LABEL: func.func @other
// CHECK: arith.extf %{{.*}} : bf16 to f32
func.func @other(%x: bf16) -> f32 {
  %0 = arith.extf %x : bf16 to f32
  return %0 : f32
}
