// RUN: %nova-opt %s --pair-roundings | %filecheck %s

// The sums of two elements, and what follows a bias: two instructions for four roundings. The second
// sum moves before the first rounding of a sum.
// CHECK-LABEL: func.func @sums(
// CHECK: %[[W:.*]] = llvm.inline_asm "cvt.rn.bf16x2.f32 {{.*}} %arg1, %arg0
// CHECK: %[[L:.*]] = arith.shli %[[W]]
// CHECK: %[[A:.*]] = arith.bitcast %[[L]] : i32 to f32
// CHECK: %[[H:.*]] = arith.andi %[[W]]
// CHECK: %[[B:.*]] = arith.bitcast %[[H]] : i32 to f32
// CHECK: %[[S:.*]] = arith.addf %[[A]], %arg2 : f32
// CHECK: %[[T:.*]] = arith.addf %[[B]], %arg2 : f32
// CHECK: %[[V:.*]] = llvm.inline_asm "cvt.rn.bf16x2.f32 {{.*}} %[[T]], %[[S]]
// CHECK: %[[P:.*]] = llvm.bitcast %[[V]] : i32 to vector<2xbf16>
// CHECK: vector.extract %[[P]][0]
// CHECK: vector.extract %{{.*}}[1]
// CHECK-NOT: arith.truncf
func.func @sums(%x: f32, %y: f32, %bias: f32) -> (bf16, bf16) {
  %0 = arith.truncf %x : f32 to bf16
  %1 = arith.extf %0 : bf16 to f32
  %2 = arith.addf %1, %bias : f32
  %3 = arith.truncf %2 : f32 to bf16
  %4 = arith.truncf %y : f32 to bf16
  %5 = arith.extf %4 : bf16 to f32
  %6 = arith.addf %5, %bias : f32
  %7 = arith.truncf %6 : f32 to bf16
  return %3, %7 : bf16, bf16
}

// The second depends on the first, or on memory that may change between them.
// CHECK-LABEL: func.func @dependent(
// CHECK-COUNT-3: arith.truncf
func.func @dependent(%x: f32, %m: memref<4xf32>, %i: index) -> (bf16, bf16) {
  %0 = arith.truncf %x : f32 to bf16
  %1 = arith.extf %0 : bf16 to f32
  %2 = arith.mulf %1, %1 : f32
  %3 = arith.truncf %2 : f32 to bf16
  memref.store %x, %m[%i] : memref<4xf32>
  %4 = memref.load %m[%i] : memref<4xf32>
  %5 = arith.truncf %4 : f32 to bf16
  return %3, %5 : bf16, bf16
}
