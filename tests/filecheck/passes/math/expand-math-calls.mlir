// RUN: %nova-opt %s --expand-math='max-inlined=2' | %filecheck %s

// A function that stands in the module more often than that is written once, and called.
// CHECK: func.func private @math_exp_vector_4xf32(%{{.*}}: vector<4xf32>) -> vector<4xf32> attributes {nova.math}
// CHECK-NOT: call
// CHECK: return
// CHECK-LABEL: func.func @often(
// CHECK-COUNT-3: call @math_exp_vector_4xf32(
// CHECK-NOT: {{math\.exp|arith.mulf}}
// CHECK: return
func.func @often(%x: vector<4xf32>) -> vector<4xf32> {
  %0 = math.exp %x : vector<4xf32>
  %1 = math.exp %0 : vector<4xf32>
  %2 = math.exp %1 : vector<4xf32>
  return %2 : vector<4xf32>
}

// Others stay inlined: of another type, and scalars up to four times as often.
// CHECK-LABEL: func.func @seldom(
// CHECK-NOT: {{call|math\.exp}}
// CHECK: return
func.func @seldom(%x: vector<8xf32>, %y: f32) -> (vector<8xf32>, f32) {
  %0 = math.exp %x : vector<8xf32>
  %1 = math.exp %y : f32
  %2 = math.exp %1 : f32
  %3 = math.exp %2 : f32
  return %0, %3 : vector<8xf32>, f32
}
