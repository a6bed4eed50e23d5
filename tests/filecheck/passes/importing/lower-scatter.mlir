// RUN: %nova-opt %s --lower-scatter | %filecheck %s

// Rows of the updates are added where the indices say; what is outside changes nothing.
// CHECK-LABEL: func.func @rows(
// CHECK: scf.for %[[I:.*]] = {{.*}} iter_args(%{{.*}} = %arg0)
// CHECK: scf.for %[[J:.*]] = {{.*}} iter_args(%[[STATE:.*]] = %{{.*}})
// CHECK: %[[AT:.*]] = tensor.extract %arg1[%[[I]], %{{.*}}]
// CHECK: arith.index_cast %[[AT]]
// CHECK: %[[OLD:.*]] = tensor.extract %[[STATE]]
// CHECK: %[[UPDATE:.*]] = tensor.extract %arg2[%[[I]], %[[J]]]
// CHECK: %[[NEW:.*]] = arith.addf %[[OLD]], %[[UPDATE]]
// CHECK: %[[VALUE:.*]] = arith.select %{{.*}}, %[[NEW]], %[[OLD]]
// CHECK: tensor.insert %[[VALUE]] into %[[STATE]]
func.func @rows(%x: tensor<10x3xf32>, %at: tensor<6x1xi32>, %new: tensor<6x3xf32>) -> tensor<10x3xf32> {
  %0 = "stablehlo.scatter"(%x, %at, %new) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = tensor.empty() : tensor<f32>
    %2 = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []} ins(%a, %b : tensor<f32>, tensor<f32>) outs(%1 : tensor<f32>) {
    ^bb0(%in: f32, %in2: f32, %out: f32):
      %3 = arith.addf %in, %in2 : f32
      linalg.yield %3 : f32
    } -> tensor<f32>
    stablehlo.return %2 : tensor<f32>
  }) : (tensor<10x3xf32>, tensor<6x1xi32>, tensor<6x3xf32>) -> tensor<10x3xf32>
  return %0 : tensor<10x3xf32>
}
