// RUN: %nova-opt %s --outline-scans | %filecheck %s
// RUN: %nova-opt %s --outline-scans --stablehlo-legalize-to-linalg --lower-scans | %filecheck %s --check-prefix=LOOPS

// A window as long as its axis, padded by all but one element: a running sum.
// CHECK-LABEL: func.func @sum(
// CHECK: stablehlo.custom_call @nova.scan(%arg0, %arg1) {{.*}}axis = 1 : i64, reverse = false{{.*}}called_computations = [@scan_0]
// LOOPS-LABEL: func.func @sum(
// LOOPS: scf.for
// LOOPS: scf.for {{.*}} -> (f32, tensor<2x5xf32>)
// LOOPS: arith.addf
// LOOPS: tensor.insert
func.func @sum(%x: tensor<2x5xf32>, %zero: tensor<f32>) -> tensor<2x5xf32> {
  %0 = "stablehlo.reduce_window"(%x, %zero) <{padding = dense<[[0, 0], [4, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 1, 5>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<2x5xf32>, tensor<f32>) -> tensor<2x5xf32>
  return %0 : tensor<2x5xf32>
}

// From the end; a sum of halves is a sum of floats.
// CHECK-LABEL: func.func @halves(
// CHECK: stablehlo.convert {{.*}} -> tensor<5xf32>
// CHECK: stablehlo.custom_call @nova.scan({{.*}}reverse = true
// CHECK: stablehlo.convert {{.*}} -> tensor<5xbf16>
func.func @halves(%x: tensor<5xbf16>, %zero: tensor<bf16>) -> tensor<5xbf16> {
  %0 = "stablehlo.reduce_window"(%x, %zero) <{padding = dense<[[0, 4]]> : tensor<1x2xi64>, window_dimensions = array<i64: 5>}> ({
  ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
    %1 = stablehlo.add %a, %b : tensor<bf16>
    stablehlo.return %1 : tensor<bf16>
  }) : (tensor<5xbf16>, tensor<bf16>) -> tensor<5xbf16>
  return %0 : tensor<5xbf16>
}

// A pooling stays.
// CHECK-LABEL: func.func @pool(
// CHECK: stablehlo.reduce_window
// LOOPS-LABEL: func.func @pool(
// LOOPS-NOT: scf.for
func.func @pool(%x: tensor<5xf32>, %zero: tensor<f32>) -> tensor<5xf32> {
  %0 = "stablehlo.reduce_window"(%x, %zero) <{padding = dense<[[1, 1]]> : tensor<1x2xi64>, window_dimensions = array<i64: 3>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<5xf32>, tensor<f32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// CHECK: func.func private @scan_0(
