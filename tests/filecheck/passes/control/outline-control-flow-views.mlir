// RUN: %nova-opt %s --outline-control-flow | %filecheck %s

// An op that only rearranges a value from outside is a part of the region: the loop reads the value
// itself.
// CHECK: module @loop_{{[0-9]+}}_0 {
// CHECK: func.func @main(%[[W:.*]]: tensor<4x2xf32>, %[[C:.*]]: tensor<1x4xf32>)
// CHECK: %[[T:.*]] = nova.permute %[[W]]
// CHECK: nova.matmul %{{.*}}, %[[T]]
// CHECK: func.func @main(
// CHECK: call @loop_{{[0-9]+}}(%{{.*}}, %arg0, %arg1)
func.func @main(%w: tensor<4x2xf32>, %x: tensor<1x4xf32>) -> tensor<1x4xf32> {
  %t = "nova.permute"(%w) {axes = array<i64: 1, 0>} : (tensor<4x2xf32>) -> tensor<2x4xf32>
  %r = scf.while (%a = %x) : (tensor<1x4xf32>) -> tensor<1x4xf32> {
    %limit = nova.constant dense<9.0> : tensor<f32>
    %sum = "nova.sum"(%a) {axis = array<i64: 0, 1>, keepdims = false} : (tensor<1x4xf32>) -> tensor<f32>
    %again = nova.lt %sum, %limit : tensor<f32>
    %p = tensor.extract %again[] : tensor<i1>
    scf.condition(%p) %a : tensor<1x4xf32>
  } do {
  ^bb0(%a: tensor<1x4xf32>):
    %half = "nova.slice"(%a) {starts = array<i64: 0, 0>, steps = array<i64: 1, 1>, stops = array<i64: 1, 2>} : (tensor<1x4xf32>) -> tensor<1x2xf32>
    %next = "nova.matmul"(%half, %t) : (tensor<1x2xf32>, tensor<2x4xf32>) -> tensor<1x4xf32>
    scf.yield %next : tensor<1x4xf32>
  }
  return %r : tensor<1x4xf32>
}
