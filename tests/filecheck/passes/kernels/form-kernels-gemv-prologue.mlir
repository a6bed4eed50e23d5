// RUN: %nova-opt %s --form-kernels='share-rows=false' | %filecheck %s
// RUN: %nova-opt %s --form-kernels | %filecheck %s --check-prefix=HOST

// On a device the norm of a vector is a prologue of each matrix-vector product that reads it.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK-SAME: nova.grid = array<i64: 256>
// CHECK: linalg.generic {{.*}} ins(%{{.*}} : f32) {{.*}} attrs = {nova.prologue}
// CHECK: iterator_types = ["reduction"]{{.*}} attrs = {nova.prologue}
// CHECK: iterator_types = ["parallel"]{{.*}} attrs = {nova.prologue}
// CHECK: iterator_types = ["parallel", "reduction"]
// CHECK-NOT: nova.prologue
// CHECK-LABEL: func.func private @kernel_1(
// CHECK-SAME: nova.grid = array<i64: 512>
// CHECK-COUNT-3: nova.prologue
// CHECK-LABEL: func.func @main(
// CHECK-COUNT-2: call @kernel_

// HOST-NOT: nova.prologue
#vector = affine_map<(d0) -> (d0)>
#scalar = affine_map<(d0) -> ()>
#none = affine_map<() -> ()>
#columns = affine_map<(d0, d1) -> (d1)>
#matrix = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>
func.func @main(%x: tensor<256xf32>, %w: tensor<256x256xf32>, %v: tensor<512x256xf32>) -> (tensor<256xf32>, tensor<512xf32>) {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<f32>
  %f0 = linalg.generic {indexing_maps = [#none, #none], iterator_types = []} ins(%zero : f32) outs(%e0 : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<f32>
  %sum = linalg.generic {indexing_maps = [#vector, #scalar], iterator_types = ["reduction"]} ins(%x : tensor<256xf32>) outs(%f0 : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.mulf %in, %in : f32
    %1 = arith.addf %out, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<f32>
  %e1 = tensor.empty() : tensor<256xf32>
  %norm = linalg.generic {indexing_maps = [#vector, #scalar, #vector], iterator_types = ["parallel"]} ins(%x, %sum : tensor<256xf32>, tensor<f32>) outs(%e1 : tensor<256xf32>) {
  ^bb0(%in: f32, %s: f32, %out: f32):
    %0 = math.rsqrt %s : f32
    %1 = arith.mulf %in, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<256xf32>
  %f1 = linalg.generic {indexing_maps = [#scalar, #vector], iterator_types = ["parallel"]} ins(%zero : f32) outs(%e1 : tensor<256xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<256xf32>
  %first = linalg.generic {indexing_maps = [#columns, #matrix, #rows], iterator_types = ["parallel", "reduction"]} ins(%norm, %w : tensor<256xf32>, tensor<256x256xf32>) outs(%f1 : tensor<256xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %out, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<256xf32>
  %e2 = tensor.empty() : tensor<512xf32>
  %f2 = linalg.generic {indexing_maps = [#scalar, #vector], iterator_types = ["parallel"]} ins(%zero : f32) outs(%e2 : tensor<512xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<512xf32>
  %second = linalg.generic {indexing_maps = [#columns, #matrix, #rows], iterator_types = ["parallel", "reduction"]} ins(%norm, %v : tensor<256xf32>, tensor<512x256xf32>) outs(%f2 : tensor<512xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %out, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<512xf32>
  return %first, %second : tensor<256xf32>, tensor<512xf32>
}
