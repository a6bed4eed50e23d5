// RUN: %nova-opt %s --widen-conversions | %filecheck %s

// CHECK-LABEL: func.func @from_integer
// CHECK: %[[W:.*]] = arith.sitofp %{{.*}} : i32 to f32
// CHECK-NEXT: arith.truncf %[[W]] : f32 to f16
func.func @from_integer(%x: i32) -> f16 {
  %0 = arith.sitofp %x : i32 to f16
  return %0 : f16
}

// CHECK-LABEL: func.func @to_integer
// CHECK: %[[W:.*]] = arith.extf %{{.*}} : bf16 to f32
// CHECK-NEXT: arith.fptoui %[[W]] : f32 to i8
func.func @to_integer(%x: bf16) -> i8 {
  %0 = arith.fptoui %x : bf16 to i8
  return %0 : i8
}

// CHECK-LABEL: func.func @wide
// CHECK: arith.uitofp %{{.*}} : i64 to f64
func.func @wide(%x: i64) -> f64 {
  %0 = arith.uitofp %x : i64 to f64
  return %0 : f64
}

// CHECK-LABEL: func.func @vectors
// CHECK: %[[W:.*]] = arith.sitofp %{{.*}} : vector<8xi32> to vector<8xf32>
// CHECK-NEXT: arith.truncf %[[W]] : vector<8xf32> to vector<8xbf16>
func.func @vectors(%x: vector<8xi32>) -> vector<8xbf16> {
  %0 = arith.sitofp %x : vector<8xi32> to vector<8xbf16>
  return %0 : vector<8xbf16>
}
