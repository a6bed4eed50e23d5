// RUN: %nova-opt %s --lower-sort | %filecheck %s

// Eight elements are merged in three rounds; the right element goes first only when it is smaller.
// CHECK-LABEL: func.func @rows(
// CHECK: scf.for
// CHECK: %[[RIGHT:.*]] = arith.cmpf olt, %[[B:.*]], %[[A:.*]] : f32
// CHECK: arith.select %{{.*}}, %[[B]], %[[A]]
// CHECK-COUNT-2: arith.cmpf olt
// CHECK-NOT: arith.cmpf
// CHECK-NOT: stablehlo.sort
func.func @rows(%x: tensor<5x8xf32>) -> tensor<5x8xf32> {
  %0 = "stablehlo.sort"(%x) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = tensor.empty() : tensor<i1>
    %2 = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []} ins(%a, %b : tensor<f32>, tensor<f32>) outs(%1 : tensor<i1>) {
    ^bb0(%in: f32, %in2: f32, %out: i1):
      %3 = arith.cmpf olt, %in, %in2 : f32
      linalg.yield %3 : i1
    } -> tensor<i1>
    stablehlo.return %2 : tensor<i1>
  }) : (tensor<5x8xf32>) -> tensor<5x8xf32>
  return %0 : tensor<5x8xf32>
}

// Of 32 elements three are used: they are selected. The loop over all elements compares each with the
// root of the heap.
// CHECK-LABEL: func.func @front(
// CHECK: %[[OUT:.*]] = tensor.empty() : tensor<5x3xf32>
// CHECK: arith.select %{{.*}}, %c1{{.*}}, %c0{{.*}} : index
// CHECK-NOT: tensor.extract_slice
// CHECK-NOT: stablehlo.sort
// CHECK: return %{{.*}} : tensor<5x3xf32>
func.func @front(%x: tensor<5x32xf32>) -> tensor<5x3xf32> {
  %0 = "stablehlo.sort"(%x) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = tensor.empty() : tensor<i1>
    %2 = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []} ins(%a, %b : tensor<f32>, tensor<f32>) outs(%1 : tensor<i1>) {
    ^bb0(%in: f32, %in2: f32, %out: i1):
      %3 = arith.cmpf ogt, %in, %in2 : f32
      linalg.yield %3 : i1
    } -> tensor<i1>
    stablehlo.return %2 : tensor<i1>
  }) : (tensor<5x32xf32>) -> tensor<5x32xf32>
  %4 = tensor.extract_slice %0[0, 0] [5, 3] [1, 1] : tensor<5x32xf32> to tensor<5x3xf32>
  return %4 : tensor<5x3xf32>
}

// A slice that does not begin at the first element needs the sort.
// CHECK-LABEL: func.func @middle(
// CHECK: tensor.extract_slice
func.func @middle(%x: tensor<32xf32>) -> tensor<3xf32> {
  %0 = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = tensor.empty() : tensor<i1>
    %2 = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []} ins(%a, %b : tensor<f32>, tensor<f32>) outs(%1 : tensor<i1>) {
    ^bb0(%in: f32, %in2: f32, %out: i1):
      %3 = arith.cmpf ogt, %in, %in2 : f32
      linalg.yield %3 : i1
    } -> tensor<i1>
    stablehlo.return %2 : tensor<i1>
  }) : (tensor<32xf32>) -> tensor<32xf32>
  %4 = tensor.extract_slice %0[1] [3] [1] : tensor<32xf32> to tensor<3xf32>
  return %4 : tensor<3xf32>
}
