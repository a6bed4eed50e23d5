// RUN: %nova-opt %s --lower-scans | %filecheck %s

#map = affine_map<() -> ()>

// Along the last axis: the state is carried in a register.
// CHECK-LABEL: func.func @sum(
// CHECK: tensor.empty() : tensor<2x5xf32>
// CHECK: scf.for
// CHECK: %[[INITIAL:.*]] = tensor.extract %arg1[]
// CHECK: scf.for %[[I:.*]] = {{.*}} iter_args(%[[STATE:.*]] = %[[INITIAL]], {{.*}}) -> (f32, tensor<2x5xf32>)
// CHECK: %[[ELEMENT:.*]] = tensor.extract %arg0[{{.*}}, %[[I]]]
// CHECK: %[[SUM:.*]] = arith.addf %[[STATE]], %[[ELEMENT]]
// CHECK: tensor.insert %[[SUM]]
func.func @sum(%x: tensor<2x5xf32>, %zero: tensor<f32>) -> tensor<2x5xf32> {
  %0 = stablehlo.custom_call @nova.scan(%x, %zero) {api_version = 4 : i32, backend_config = {axis = 1 : i64, reverse = false}, called_computations = [@scan_0]} : (tensor<2x5xf32>, tensor<f32>) -> tensor<2x5xf32>
  return %0 : tensor<2x5xf32>
}

// Along another axis, from its end: the state is the row after, and the loop over columns is inside.
// CHECK-LABEL: func.func @max(
// CHECK: scf.for %[[ROW:.*]] = {{.*}} -> (tensor<5x2xi32>) {
// CHECK: arith.subi
// CHECK: scf.for %[[ROW:.*]] = {{.*}} -> (tensor<5x2xi32>) {
// CHECK: scf.for {{.*}} -> (tensor<5x2xi32>) {
// CHECK: arith.maxsi
// CHECK: tensor.insert
// CHECK-NOT: func.func private @scan
func.func @max(%x: tensor<5x2xi32>, %low: tensor<i32>) -> tensor<5x2xi32> {
  %0 = stablehlo.custom_call @nova.scan(%x, %low) {api_version = 4 : i32, backend_config = {axis = 0 : i64, reverse = true}, called_computations = [@scan_1]} : (tensor<5x2xi32>, tensor<i32>) -> tensor<5x2xi32>
  return %0 : tensor<5x2xi32>
}

func.func private @scan_0(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
  %0 = tensor.empty() : tensor<f32>
  %1 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = []} ins(%a, %b : tensor<f32>, tensor<f32>) outs(%0 : tensor<f32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %2 = arith.addf %x, %y : f32
    linalg.yield %2 : f32
  } -> tensor<f32>
  return %1 : tensor<f32>
}

func.func private @scan_1(%a: tensor<i32>, %b: tensor<i32>) -> tensor<i32> {
  %0 = tensor.empty() : tensor<i32>
  %1 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = []} ins(%a, %b : tensor<i32>, tensor<i32>) outs(%0 : tensor<i32>) {
  ^bb0(%x: i32, %y: i32, %out: i32):
    %2 = arith.maxsi %x, %y : i32
    linalg.yield %2 : i32
  } -> tensor<i32>
  return %1 : tensor<i32>
}
