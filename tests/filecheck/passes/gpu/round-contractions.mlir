// RUN: %nova-opt %s --split-input-file --round-contractions | %filecheck %s
// The reader rounds the result of a contraction, after a reshape: the contraction is rounded.

#rows = affine_map<(d0, d1, d2) -> (d0, d2)>
#columns = affine_map<(d0, d1, d2) -> (d2, d1)>
#result = affine_map<(d0, d1, d2) -> (d0, d1)>
#same = affine_map<(d0, d1, d2) -> (d0, d1, d2)>

// CHECK-LABEL: @main
// CHECK:       [[SUM:%.+]] = linalg.generic {{.*}} "reduction"
// CHECK:       [[ROUNDED:%.+]] = linalg.generic {{.*}} ins([[SUM]] : tensor<4x6xf32>) outs({{.*}} : tensor<4x6xbf16>)
// CHECK:       arith.truncf
// CHECK:       [[SPLIT:%.+]] = tensor.expand_shape [[ROUNDED]]
// CHECK-SAME:    tensor<4x6xbf16> into tensor<4x2x3xbf16>
// CHECK:       linalg.generic {{.*}} ins([[SPLIT]], {{.*}} : tensor<4x2x3xbf16>, tensor<4x2x3xbf16>)
// CHECK-NEXT:  ^bb0([[IN:%[a-z]+]]: bf16, {{.*}}):
// CHECK-NEXT:    %{{.+}} = arith.extf [[IN]] : bf16 to f32
func.func @main(%a: tensor<4x5xbf16>, %b: tensor<5x6xbf16>, %c: tensor<4x2x3xbf16>) -> tensor<4x2x3xbf16> {
  %zero = arith.constant dense<0.0> : tensor<4x6xf32>
  %sum = linalg.generic {indexing_maps = [#rows, #columns, #result], iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %b : tensor<4x5xbf16>, tensor<5x6xbf16>) outs(%zero : tensor<4x6xf32>) {
  ^bb0(%x: bf16, %y: bf16, %out: f32):
    %0 = arith.extf %x : bf16 to f32
    %1 = arith.extf %y : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %out, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<4x6xf32>
  %split = tensor.expand_shape %sum [[0], [1, 2]] output_shape [4, 2, 3] : tensor<4x6xf32> into tensor<4x2x3xf32>
  %empty = tensor.empty() : tensor<4x2x3xbf16>
  %added = linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel", "parallel", "parallel"]} ins(%split, %c : tensor<4x2x3xf32>, tensor<4x2x3xbf16>) outs(%empty : tensor<4x2x3xbf16>) {
  ^bb0(%x: f32, %y: bf16, %out: bf16):
    %0 = arith.truncf %x : f32 to bf16
    %1 = arith.extf %0 : bf16 to f32
    %2 = arith.extf %y : bf16 to f32
    %3 = arith.addf %1, %2 : f32
    %4 = arith.truncf %3 : f32 to bf16
    linalg.yield %4 : bf16
  } -> tensor<4x2x3xbf16>
  return %added : tensor<4x2x3xbf16>
}

// -----

// A reader that computes in f32 keeps it.

#rows = affine_map<(d0, d1, d2) -> (d0, d2)>
#columns = affine_map<(d0, d1, d2) -> (d2, d1)>
#result = affine_map<(d0, d1, d2) -> (d0, d1)>
#plain = affine_map<(d0, d1) -> (d0, d1)>

// CHECK-LABEL: @main
// CHECK:       [[SUM:%.+]] = linalg.generic {{.*}} "reduction"
// CHECK:       linalg.generic {{.*}} ins([[SUM]] : tensor<4x6xf32>) outs({{.*}} : tensor<4x6xbf16>)
// CHECK-NOT:   linalg.generic
func.func @main(%a: tensor<4x5xbf16>, %b: tensor<5x6xbf16>) -> tensor<4x6xbf16> {
  %zero = arith.constant dense<0.0> : tensor<4x6xf32>
  %sum = linalg.generic {indexing_maps = [#rows, #columns, #result], iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %b : tensor<4x5xbf16>, tensor<5x6xbf16>) outs(%zero : tensor<4x6xf32>) {
  ^bb0(%x: bf16, %y: bf16, %out: f32):
    %0 = arith.extf %x : bf16 to f32
    %1 = arith.extf %y : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %out, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<4x6xf32>
  %empty = tensor.empty() : tensor<4x6xbf16>
  %halved = linalg.generic {indexing_maps = [#plain, #plain], iterator_types = ["parallel", "parallel"]} ins(%sum : tensor<4x6xf32>) outs(%empty : tensor<4x6xbf16>) {
  ^bb0(%x: f32, %out: bf16):
    %0 = arith.mulf %x, %x : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<4x6xbf16>
  return %halved : tensor<4x6xbf16>
}
