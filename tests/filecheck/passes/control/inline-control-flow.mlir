// RUN: %nova-opt %s --inline-control-flow | %filecheck %s

// The inverse of outline-control-flow, for loops with ops of the host: one kernel on the host.
// CHECK-NOT: module @
// CHECK: func.func @main(%[[X:.*]]: tensor<4xf32>, %[[XS:.*]]: tensor<3x4xf32>) -> tensor<4xf32>
// CHECK: scf.for %[[I:.*]] = %{{.*}} to %{{.*}} step %{{.*}} iter_args(%[[C:.*]] = %[[X]])
// CHECK: arith.addf
// CHECK: scf.yield
// CHECK-NOT: nova.control
module {
  module @loop_0_0 {
    func.func @main(%i: tensor<i64>, %c: tensor<4xf32>, %x: tensor<4xf32>) -> tensor<4xf32> attributes {nova.inputs = 3 : i64} {
      %init = tensor.empty() : tensor<4xf32>
      %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%c, %x : tensor<4xf32>, tensor<4xf32>) outs(%init : tensor<4xf32>) attrs = {nova.device = "cpu"} {
      ^bb0(%a: f32, %b: f32, %out: f32):
        %s = arith.addf %a, %b : f32
        linalg.yield %s : f32
      } -> tensor<4xf32>
      return %r : tensor<4xf32>
    }
  }
  func.func private @loop_0(tensor<4xf32>, tensor<3x4xf32>) -> tensor<4xf32> attributes {nova.control = {carries = 1 : i64, construct = "for", consts = 0 : i64, length = 3 : i64, regions = [@loop_0_0], reverse = false}}
  func.func @main(%x: tensor<4xf32>, %xs: tensor<3x4xf32>) -> tensor<4xf32> attributes {nova.inputs = 2 : i64} {
    %r = call @loop_0(%x, %xs) : (tensor<4xf32>, tensor<3x4xf32>) -> tensor<4xf32>
    return %r : tensor<4xf32>
  }
}
