// RUN: %nova-opt %s --decompose-composites --convert-nova-to-linalg | %filecheck %s
// RUN: %nova-opt %s --decompose-composites | %filecheck %s --check-prefix=PRIMITIVES
// The ops of the family `randomness`: what they are made of, and their loops.

// PRIMITIVES-LABEL: func.func @uniform(
// CHECK-LABEL: func.func @uniform(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.muli
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: arith.addi
// CHECK: arith.andi
// CHECK: arith.shrui
// CHECK: arith.andi
// CHECK: arith.shrui
// CHECK: arith.muli
// CHECK: arith.shrui
// CHECK: arith.andi
// CHECK-NOT: nova.
func.func @uniform(%arg0: tensor<i64>) -> tensor<4xf32> {
  %0 = "nova.uniform"(%arg0) {shape = array<i64: 4>, stream = 0 : i64} : (tensor<i64>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// PRIMITIVES-LABEL: func.func @normal(
// PRIMITIVES: nova.uniform %
// PRIMITIVES: nova.sub %
// PRIMITIVES: nova.log %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.sqrt %
// PRIMITIVES: nova.uniform %
// PRIMITIVES: nova.mul %
// PRIMITIVES: nova.cos %
// PRIMITIVES: nova.mul %
// PRIMITIVES-NOT: nova.normal
// CHECK-LABEL: func.func @normal(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK-NOT: nova.
func.func @normal(%arg0: tensor<i64>) -> tensor<4xf32> {
  %0 = "nova.normal"(%arg0) {shape = array<i64: 4>} : (tensor<i64>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
