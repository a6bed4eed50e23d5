// RUN: %nova-opt %s --transpose-f8-operands | %filecheck %s

#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>

// CHECK-DAG: #[[READ:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-DAG: #[[ALONG:.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-LABEL: func.func @large
// CHECK: linalg.generic {indexing_maps = [#[[READ]], #{{.*}}], iterator_types = ["parallel", "parallel"]}
// CHECK-SAME: ins(%{{.*}} : tensor<256x128xf8E5M2>) outs(%{{.*}} : tensor<128x256xf8E5M2>)
// CHECK: linalg.generic {indexing_maps = [#{{.*}}, #[[ALONG]], #{{.*}}]
func.func @large(%x: tensor<512x256xf8E4M3FN>, %y: tensor<256x128xf8E5M2>,
                 %z: tensor<512x128xf32>) -> tensor<512x128xf32> {
  %0 = linalg.generic
      {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %y : tensor<512x256xf8E4M3FN>, tensor<256x128xf8E5M2>)
      outs(%z : tensor<512x128xf32>) {
  ^bb0(%p: f8E4M3FN, %q: f8E5M2, %s: f32):
    %1 = arith.extf %p : f8E4M3FN to f32
    %2 = arith.extf %q : f8E5M2 to f32
    %3 = arith.mulf %1, %2 : f32
    %4 = arith.addf %s, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<512x128xf32>
  return %0 : tensor<512x128xf32>
}

// CHECK-LABEL: func.func @few_rows
// CHECK-COUNT-1: linalg.generic
// CHECK-NOT: linalg.generic
func.func @few_rows(%x: tensor<8x256xf8E4M3FN>, %y: tensor<256x128xf8E5M2>,
                    %z: tensor<8x128xf32>) -> tensor<8x128xf32> {
  %0 = linalg.generic
      {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %y : tensor<8x256xf8E4M3FN>, tensor<256x128xf8E5M2>)
      outs(%z : tensor<8x128xf32>) {
  ^bb0(%p: f8E4M3FN, %q: f8E5M2, %s: f32):
    %1 = arith.extf %p : f8E4M3FN to f32
    %2 = arith.extf %q : f8E5M2 to f32
    %3 = arith.mulf %1, %2 : f32
    %4 = arith.addf %s, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<8x128xf32>
  return %0 : tensor<8x128xf32>
}
