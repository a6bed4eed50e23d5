// RUN: %nova-opt %s --outline-control-flow | %filecheck %s

// The first test of the condition runs before the loop; its region is the body and the next test.
// CHECK: module @[[STEP:loop_[0-9]+_0]] {
// CHECK: func.func @main(%[[C:.*]]: tensor<f32>) -> (tensor<f32>, tensor<i1>)
// CHECK: nova.add
// CHECK: nova.lt
// CHECK: func.func private @[[LOOP:loop_[0-9]+]](tensor<i1>, tensor<f32>) -> tensor<f32>
// CHECK-SAME: construct = "while"
// CHECK: func.func @main(
// CHECK: %[[FIRST:.*]] = nova.lt
// CHECK: call @[[LOOP]](%[[FIRST]], %arg0)
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %r = scf.while (%a = %x) : (tensor<f32>) -> tensor<f32> {
    %limit = nova.constant dense<9.0> : tensor<f32>
    %again = nova.lt %a, %limit : tensor<f32>
    %p = tensor.extract %again[] : tensor<i1>
    scf.condition(%p) %a : tensor<f32>
  } do {
  ^bb0(%a: tensor<f32>):
    %one = nova.constant dense<1.0> : tensor<f32>
    %next = nova.add %a, %one : tensor<f32>
    scf.yield %next : tensor<f32>
  }
  return %r : tensor<f32>
}
