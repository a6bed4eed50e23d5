// RUN: %nova-opt %s --legalize-conversions | %filecheck %s

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
// CHECK: %[[W:.*]] = arith.sitofp %{{.*}} : vector<8xi16> to vector<8xf32>
// CHECK-NEXT: arith.truncf %[[W]] : vector<8xf32> to vector<8xbf16>
func.func @vectors(%x: vector<8xi16>) -> vector<8xbf16> {
  %0 = arith.sitofp %x : vector<8xi16> to vector<8xbf16>
  return %0 : vector<8xbf16>
}

// An f32 does not hold it: through f64, and rounded to odd on the way.
// CHECK-LABEL: func.func @large_integers
// CHECK: %[[W:.*]] = arith.sitofp %{{.*}} : vector<8xi32> to vector<8xf64>
// CHECK: %[[N:.*]] = arith.truncf %[[W]] : vector<8xf64> to vector<8xf32>
// CHECK: %[[B:.*]] = arith.extf %[[N]] : vector<8xf32> to vector<8xf64>
// CHECK: %[[O:.*]] = arith.bitcast %{{.*}} : vector<8xi32> to vector<8xf32>
// CHECK-NEXT: arith.truncf %[[O]] : vector<8xf32> to vector<8xbf16>
func.func @large_integers(%x: vector<8xi32>) -> vector<8xbf16> {
  %0 = arith.sitofp %x : vector<8xi32> to vector<8xbf16>
  return %0 : vector<8xbf16>
}

// CHECK-LABEL: func.func @from_double
// CHECK: arith.truncf %arg0 : f64 to f32
// CHECK: arith.cmpf olt
// CHECK: arith.truncf %{{.*}} : f32 to f16
func.func @from_double(%x: f64) -> f16 {
  %0 = arith.truncf %x : f64 to f16
  return %0 : f16
}

// CHECK-LABEL: func.func @to_double
// CHECK: %[[W:.*]] = arith.extf %arg0 : bf16 to f32
// CHECK-NEXT: arith.extf %[[W]] : f32 to f64
func.func @to_double(%x: bf16) -> f64 {
  %0 = arith.extf %x : bf16 to f64
  return %0 : f64
}
