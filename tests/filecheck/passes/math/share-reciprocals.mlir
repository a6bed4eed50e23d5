// RUN: %nova-opt %s --share-reciprocals | %filecheck %s

// One division, and for each quotient what is left to it.
// CHECK-LABEL: func.func @four(
// CHECK-SAME: %[[A:.*]]: f32, %{{.*}}: f32, %{{.*}}: f32, %{{.*}}: f32, %[[D:.*]]: f32)
// CHECK: %[[R:.*]] = arith.divf %cst{{.*}}, %[[D]] : f32
// CHECK: %[[MINUS:.*]] = arith.negf %[[D]] : f32
// CHECK: %[[NEAR:.*]] = arith.mulf %[[A]], %[[R]] : f32
// CHECK: %[[REST:.*]] = math.fma %[[NEAR]], %[[MINUS]], %[[A]] : f32
// CHECK: %[[SUM:.*]] = math.fma %[[REST]], %[[R]], %[[NEAR]] : f32
// CHECK: %[[EXACT:.*]] = math.copysign %[[SUM]], %[[NEAR]] : f32
// CHECK: %[[NUMBER:.*]] = arith.cmpf olt, %{{.*}}, %{{.*}} : f32
// CHECK: arith.select %[[NUMBER]], %[[EXACT]], %[[NEAR]] : f32
// CHECK-NOT: arith.divf
// CHECK: return
func.func @four(%a: f32, %b: f32, %c: f32, %e: f32, %d: f32) -> (f32, f32, f32, f32) {
  %0 = arith.divf %a, %d : f32
  %1 = arith.divf %b, %d : f32
  %2 = arith.divf %c, %d : f32
  %3 = arith.divf %e, %d : f32
  return %0, %1, %2, %3 : f32, f32, f32, f32
}

// Few quotients, other types, and divisors that LLVM knows stay.
// CHECK-LABEL: func.func @others(
// CHECK-COUNT-6: arith.divf
// CHECK-NOT: math.fma
func.func @others(%a: f32, %d: f32, %x: f64, %y: f64) -> (f32, f32, f64, f64, f64, f64) {
  %0 = arith.divf %a, %d : f32
  %1 = arith.divf %d, %d : f32
  %2 = arith.divf %x, %y : f64
  %3 = arith.divf %2, %y : f64
  %4 = arith.divf %3, %y : f64
  %5 = arith.divf %4, %y : f64
  return %0, %1, %2, %3, %4, %5 : f32, f32, f64, f64, f64, f64
}
