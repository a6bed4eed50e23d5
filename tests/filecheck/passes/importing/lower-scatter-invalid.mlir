// RUN: %nova-opt %s --lower-scatter --verify-diagnostics

func.func @several(%x: tensor<4xf32>, %at: tensor<2x1xi32>, %new: tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // expected-error@+1 {{stablehlo.scatter of several operands at once}}
  %0:2 = "stablehlo.scatter"(%x, %x, %at, %new, %new) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<f32>, %d: tensor<f32>):
    stablehlo.return %c, %d : tensor<f32>, tensor<f32>
  }) : (tensor<4xf32>, tensor<4xf32>, tensor<2x1xi32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  return %0#0, %0#1 : tensor<4xf32>, tensor<4xf32>
}
