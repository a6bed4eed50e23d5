// RUN: %nova-opt %s --split-input-file --nova-to-linalg | %filecheck %s --check-prefix=WHOLE
// RUN: %nova-opt %s --split-input-file --convert-nova-to-linalg --fuse-elementwise='max-size=100' | %filecheck %s --check-prefix=FUSED
// RUN: %nova-opt %s --split-input-file --convert-nova-to-linalg --form-kernels='serial-work=0 max-size=100' | %filecheck %s --check-prefix=KERNELS

// Two functions and their operands make an op of 80: a third is an op, and a kernel, of its own.
// WHOLE-COUNT-1: linalg.generic
// WHOLE-NOT: linalg.generic

// FUSED: linalg.generic
// FUSED: math.sin
// FUSED-NEXT: math.cos
// FUSED: linalg.generic
// FUSED: math.tanh
// FUSED-NOT: nova.barrier

// KERNELS-LABEL: func.func private @kernel_0(
// KERNELS: math.sin
// KERNELS: math.cos
// KERNELS-LABEL: func.func private @kernel_1(
// KERNELS: math.tanh
// KERNELS-LABEL: func.func @main(
func.func @main(%x: tensor<128xf32>) -> tensor<128xf32> {
  %0 = "nova.sin"(%x) : (tensor<128xf32>) -> tensor<128xf32>
  %1 = "nova.cos"(%0) : (tensor<128xf32>) -> tensor<128xf32>
  %2 = "nova.tanh"(%1) : (tensor<128xf32>) -> tensor<128xf32>
  return %2 : tensor<128xf32>
}
