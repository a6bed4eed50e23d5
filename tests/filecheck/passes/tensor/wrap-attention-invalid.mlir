// RUN: %nova-opt %s --split-input-file --verify-diagnostics

func.func @maps(%q: tensor<3x4xf32>, %k: tensor<5x4xf32>, %v: tensor<5x4xf32>) {
  // expected-error @+1 {{'nova.attend' op has 0 maps for 5 operands and results}}
  %0:2 = "nova.attend"(%q, %k, %v) : (tensor<3x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>) -> (tensor<3x4xf32>, tensor<3xf32>)
  return
}
