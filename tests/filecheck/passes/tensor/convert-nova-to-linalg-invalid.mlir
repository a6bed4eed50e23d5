// RUN: %nova-opt %s --convert-nova-to-linalg --verify-diagnostics

func.func @composite(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{nova.softmax has no lowering to linalg}}
  %0 = "nova.softmax"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
