// RUN: %nova-opt %s --outline-control-flow | %filecheck %s

// A loop that reads rows of %xs and writes rows of a result: the control function takes the stacks,
// the region one row of each.
// CHECK: module @[[BODY:loop_[0-9]+_0]] {
// CHECK: func.func @main(%{{.*}}: tensor<i64>, %[[W:.*]]: tensor<4xf32>, %[[C:.*]]: tensor<4xf32>, %[[X:.*]]: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
// CHECK: %[[NEXT:.*]] = nova.add %[[C]], %[[X]]
// CHECK: %[[Y:.*]] = nova.mul %[[NEXT]], %[[W]]
// CHECK: return %[[NEXT]], %[[Y]]
// CHECK: func.func private @[[LOOP:loop_[0-9]+]](tensor<4xf32>, tensor<4xf32>, tensor<3x4xf32>) -> (tensor<4xf32>, tensor<3x4xf32>)
// CHECK-SAME: carries = 1
// CHECK-SAME: construct = "for"
// CHECK-SAME: consts = 1
// CHECK-SAME: length = 3
// CHECK-SAME: regions = [@[[BODY]]]
// CHECK: func.func @main(
// CHECK: call @[[LOOP]](%arg2, %arg0, %arg1)
func.func @main(%x: tensor<4xf32>, %xs: tensor<3x4xf32>, %w: tensor<4xf32>) -> (tensor<4xf32>, tensor<3x4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %stack = tensor.empty() : tensor<3x4xf32>
  %r:2 = scf.for %i = %c0 to %c3 step %c1 iter_args(%c = %x, %ys = %stack) -> (tensor<4xf32>, tensor<3x4xf32>) {
    %row = tensor.extract_slice %xs[%i, 0] [1, 4] [1, 1] : tensor<3x4xf32> to tensor<4xf32>
    %next = nova.add %c, %row : tensor<4xf32>
    %y = nova.mul %next, %w : tensor<4xf32>
    %all = tensor.insert_slice %y into %ys[%i, 0] [1, 4] [1, 1] : tensor<4xf32> into tensor<3x4xf32>
    scf.yield %next, %all : tensor<4xf32>, tensor<3x4xf32>
  }
  return %r#0, %r#1 : tensor<4xf32>, tensor<3x4xf32>
}
