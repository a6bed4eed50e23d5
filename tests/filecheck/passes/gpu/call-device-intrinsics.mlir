// RUN: %nova-opt %s --call-device-intrinsics | %filecheck %s

// What a device has instructions for is asked of LLVM, which knows them; upstream's conversion
// would call a math library.
// CHECK-LABEL: func.func @known(
// CHECK-SAME: %[[X:.*]]: f32, %[[Y:.*]]: f32, %[[N:.*]]: i32)
// CHECK-NOT: math.
// CHECK: llvm.call_intrinsic "llvm.fabs"(%[[X]]) : (f32) -> f32
// CHECK: llvm.call_intrinsic "llvm.sqrt"
// CHECK: llvm.call_intrinsic "llvm.fma"(%{{.*}}, %{{.*}}, %[[Y]]) : (f32, f32, f32) -> f32
// CHECK: llvm.call_intrinsic "llvm.ctpop"(%[[N]]) : (i32) -> i32
// CHECK-NOT: math.
func.func @known(%x: f32, %y: f32, %n: i32) -> (f32, i32) {
  %0 = math.absf %x : f32
  %1 = math.sqrt %0 : f32
  %2 = math.fma %0, %1, %y : f32
  %3 = math.ctpop %n : i32
  return %2, %3 : f32, i32
}

// Functions that no instruction computes are the work of expand-math.
// CHECK-LABEL: func.func @others(
// CHECK: math.erf
func.func @others(%x: f32) -> f32 {
  %0 = math.erf %x : f32
  return %0 : f32
}

// An f32 is rounded to bf16 by an instruction, two elements of a vector by one.
// CHECK-LABEL: func.func @rounded(
// CHECK-SAME: %[[X:.*]]: f32, %[[V:.*]]: vector<3xf32>, %[[D:.*]]: f64)
// CHECK: %[[WORD:.*]] = llvm.inline_asm "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %{{.*}}, %[[X]]
// CHECK: arith.trunci %[[WORD]] : i32 to i16
// CHECK-DAG: %[[FIRST:.*]] = vector.extract %[[V]][0] : f32
// CHECK-DAG: %[[SECOND:.*]] = vector.extract %[[V]][1] : f32
// CHECK-DAG: %[[THIRD:.*]] = vector.extract %[[V]][2] : f32
// CHECK: llvm.inline_asm "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %[[SECOND]], %[[FIRST]]
// CHECK: llvm.inline_asm "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f" %{{.*}}, %[[THIRD]]
// CHECK: arith.truncf %[[D]] : f64 to f32
func.func @rounded(%x: f32, %v: vector<3xf32>, %d: f64) -> (bf16, vector<3xbf16>, f32) {
  %0 = arith.truncf %x : f32 to bf16
  %1 = arith.truncf %v : vector<3xf32> to vector<3xbf16>
  %2 = arith.truncf %d : f64 to f32
  return %0, %1, %2 : bf16, vector<3xbf16>, f32
}

// A quotient of which only a bf16 is used need not be rounded correctly before.
// CHECK-LABEL: func.func @quotients(
// CHECK: llvm.inline_asm "div.full.f32 $0, $1, $2;", "=f,f,f"
// CHECK: arith.divf
// CHECK-NOT: div.full
func.func @quotients(%x: f32, %y: f32) -> (bf16, bf16, f32) {
  %0 = arith.divf %x, %y : f32
  %1 = arith.mulf %0, %x : f32
  %2 = arith.truncf %1 : f32 to bf16
  %3 = arith.divf %y, %x : f32
  %4 = arith.truncf %3 : f32 to bf16
  return %2, %4, %3 : bf16, bf16, f32
}
