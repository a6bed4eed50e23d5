// RUN: %nova-opt %s --drop-annotations | %filecheck %s

// CHECK-LABEL: func.func @main(
// CHECK-NEXT: %[[SUM:.*]] = stablehlo.add %arg0, %arg0
// CHECK-NEXT: %[[ID:.*]] = stablehlo.constant dense<0> : tensor<ui32>
// CHECK-NEXT: return %[[SUM]], %[[ID]]
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<ui32>) {
  %0 = stablehlo.optimization_barrier %x : tensor<4xf32>
  %1 = stablehlo.custom_call @Sharding(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = stablehlo.add %1, %0 : tensor<4xf32>
  %3 = "stablehlo.all_reduce"(%2) <{replica_groups = dense<0> : tensor<1x1xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %4 = stablehlo.partition_id : tensor<ui32>
  return %3, %4 : tensor<4xf32>, tensor<ui32>
}

// CHECK-LABEL: func.func @dot(
// CHECK-NOT: algorithm
func.func @dot(%a: tensor<2x3xf32>, %b: tensor<3x4xf32>) -> tensor<2x4xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = f32, rhs_precision_type = f32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
