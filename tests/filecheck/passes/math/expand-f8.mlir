// RUN: %nova-opt %s --expand-f8 | %filecheck %s
// RUN: %nova-opt %s --expand-f8=target=cuda:sm_90a | %filecheck %s --check-prefix=DEVICE

// CHECK-LABEL: func.func @widen
// CHECK: arith.bitcast %{{.*}} : f8E4M3FN to i8
// CHECK: arith.extui %{{.*}} : i8 to i32
// CHECK: arith.select
// CHECK-NOT: arith.extf
// DEVICE-LABEL: func.func @widen
// DEVICE: cvt.rn.f16x2.e4m3x2
func.func @widen(%x: f8E4M3FN) -> f32 {
  %0 = arith.extf %x : f8E4M3FN to f32
  return %0 : f32
}

// CHECK-LABEL: func.func @narrow
// CHECK: arith.bitcast %{{.*}} : vector<4xf32> to vector<4xi32>
// CHECK: arith.trunci %{{.*}} : vector<4xi32> to vector<4xi8>
// CHECK-NOT: arith.truncf
// DEVICE-LABEL: func.func @narrow
// DEVICE-COUNT-2: cvt.rn.satfinite.e5m2x2.f32
func.func @narrow(%x: vector<4xf32>) -> vector<4xf8E5M2> {
  %0 = arith.truncf %x : vector<4xf32> to vector<4xf8E5M2>
  return %0 : vector<4xf8E5M2>
}

// CHECK-LABEL: func.func @other
// CHECK: arith.extf %{{.*}} : f16 to f32
func.func @other(%x: f16) -> f32 {
  %0 = arith.extf %x : f16 to f32
  return %0 : f32
}
