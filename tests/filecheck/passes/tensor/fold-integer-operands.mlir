// RUN: %nova-opt %s --fold-integer-operands | %filecheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#tr = affine_map<(d0, d1) -> (d1, d0)>
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>

// A widened and transposed operand is read where it lies, by its own sign.
// CHECK-DAG: #[[A:.*]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-DAG: #[[B:.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-LABEL: func.func @widened
// CHECK: linalg.generic {indexing_maps = [#[[A]], #[[B]], #{{.*}}ins(%arg0, %arg1 : tensor<4x8xi8>, tensor<6x8xi8>)
// CHECK-DAG: arith.extui %{{.*}} : i8 to i32
// CHECK-DAG: arith.extsi %{{.*}} : i8 to i32
// CHECK: arith.muli
func.func @widened(%x: tensor<4x8xi8>, %y: tensor<6x8xi8>, %c: tensor<4x6xi32>) -> tensor<4x6xi32> {
  %0 = tensor.empty() : tensor<4x8xi32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x8xi8>) outs(%0 : tensor<4x8xi32>) {
  ^bb0(%in: i8, %out: i32):
    %7 = arith.extui %in : i8 to i32
    linalg.yield %7 : i32
  } -> tensor<4x8xi32>
  %2 = tensor.empty() : tensor<6x8xi32>
  %3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%y : tensor<6x8xi8>) outs(%2 : tensor<6x8xi32>) {
  ^bb0(%in: i8, %out: i32):
    %7 = arith.extsi %in : i8 to i32
    linalg.yield %7 : i32
  } -> tensor<6x8xi32>
  %4 = tensor.empty() : tensor<8x6xi32>
  %5 = linalg.generic {indexing_maps = [#tr, #id], iterator_types = ["parallel", "parallel"]} ins(%3 : tensor<6x8xi32>) outs(%4 : tensor<8x6xi32>) {
  ^bb0(%in: i32, %out: i32):
    linalg.yield %in : i32
  } -> tensor<8x6xi32>
  %6 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%1, %5 : tensor<4x8xi32>, tensor<8x6xi32>) outs(%c : tensor<4x6xi32>) {
  ^bb0(%p: i32, %q: i32, %s: i32):
    %7 = arith.muli %p, %q : i32
    %8 = arith.addi %s, %7 : i32
    linalg.yield %8 : i32
  } -> tensor<4x6xi32>
  return %6 : tensor<4x6xi32>
}

// Other work on an operand stays: it would be done again for every column.
// CHECK-LABEL: func.func @shifted
// CHECK: arith.subi
// CHECK: ins(%{{.*}}, %arg1 : tensor<4x8xi32>, tensor<8x6xi32>)
func.func @shifted(%x: tensor<4x8xi8>, %y: tensor<8x6xi32>, %c: tensor<4x6xi32>) -> tensor<4x6xi32> {
  %three = arith.constant 3 : i32
  %0 = tensor.empty() : tensor<4x8xi32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x8xi8>) outs(%0 : tensor<4x8xi32>) {
  ^bb0(%in: i8, %out: i32):
    %7 = arith.extui %in : i8 to i32
    %8 = arith.subi %7, %three : i32
    linalg.yield %8 : i32
  } -> tensor<4x8xi32>
  %6 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%1, %y : tensor<4x8xi32>, tensor<8x6xi32>) outs(%c : tensor<4x6xi32>) {
  ^bb0(%p: i32, %q: i32, %s: i32):
    %7 = arith.muli %p, %q : i32
    %8 = arith.addi %s, %7 : i32
    linalg.yield %8 : i32
  } -> tensor<4x6xi32>
  return %6 : tensor<4x6xi32>
}
