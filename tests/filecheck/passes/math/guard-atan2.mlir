// RUN: %nova-opt %s --guard-atan2 | %filecheck %s
// RUN: %nova-opt %s --guard-atan2 --canonicalize | %filecheck %s --check-prefix=FOLDED

// CHECK-LABEL: func.func @constants(
// CHECK: %[[INFINITY:.*]] = arith.divf %{{.*}}, %[[X:.*]] : f32
// CHECK: %[[GUARDED:.*]] = arith.select %{{.*}}, %[[INFINITY]], %[[X]] : f32
// CHECK: math.atan2 %{{.*}}, %[[GUARDED]] : f32
// FOLDED-LABEL: func.func @constants(
// FOLDED: arith.constant 3.14159274 : f32
func.func @constants() -> f32 {
  %y = arith.constant 0.0 : f32
  %x = arith.constant -0.0 : f32
  %0 = math.atan2 %y, %x : f32
  return %0 : f32
}

// CHECK-LABEL: func.func @argument(
// CHECK-NOT: arith.select
// CHECK: math.atan2
func.func @argument(%x: f32) -> f32 {
  %y = arith.constant 0.0 : f32
  %0 = math.atan2 %y, %x : f32
  return %0 : f32
}

// CHECK-LABEL: func.func @stablehlo(
// CHECK: %[[GUARDED:.*]] = stablehlo.select
// CHECK: stablehlo.atan2 %{{.*}}, %[[GUARDED]]
func.func @stablehlo() -> tensor<3xf32> {
  %y = stablehlo.constant dense<0.0> : tensor<3xf32>
  %x = stablehlo.constant dense<-0.0> : tensor<3xf32>
  %0 = stablehlo.atan2 %y, %x : tensor<3xf32>
  return %0 : tensor<3xf32>
}
