// RUN: %nova-opt %s --expand-approx-top-k | %filecheck %s

// CHECK-LABEL: func.func @main(
// CHECK: %[[SORTED:.*]]:2 = "stablehlo.sort"(%arg0, %arg1) <{dimension = 0 : i64, is_stable = true}>
// CHECK: stablehlo.compare GT
// CHECK: stablehlo.slice %[[SORTED]]#0 [0:3]
// CHECK: stablehlo.slice %[[SORTED]]#1 [0:3]
// CHECK-NOT: custom_call
func.func @main(%x: tensor<20xf32>, %i: tensor<20xi32>, %a: tensor<f32>, %b: tensor<i32>) -> (tensor<3xf32>, tensor<3xi32>) {
  %0:2 = stablehlo.custom_call @ApproxTopK(%x, %i, %a, %b) {called_computations = [@greater], mhlo.backend_config = {aggregate_to_topk = true, recall_target = 0.95 : f32, reduction_dim = 0 : i64, top_k = 3 : i64}} : (tensor<20xf32>, tensor<20xi32>, tensor<f32>, tensor<i32>) -> (tensor<3xf32>, tensor<3xi32>)
  return %0#0, %0#1 : tensor<3xf32>, tensor<3xi32>
}
func.func private @greater(%a: tensor<f32>, %b: tensor<f32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<i1> {
  %0 = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
  return %0 : tensor<i1>
}
