// RUN: %nova-opt %s --nova-to-linalg --fit-kernels='serial-work=0 max-workspace=65536' | %filecheck %s --check-prefix=ROWS
// RUN: %nova-opt %s --nova-to-linalg --fit-kernels='serial-work=0 max-workspace=32768' | %filecheck %s --check-prefix=SMALL

// Three products share their rows, and what each makes has 16384 bytes. With room for two of them, each is a kernel.
// ROWS-LABEL:  func.func @main(
// ROWS-NEXT:   %[[R:.*]]:3 = call @kernel_0(
// ROWS-NEXT:   call @kernel_1(%[[R]]#0)
// SMALL-LABEL: func.func @main(
// SMALL-NEXT:  %[[P:.*]] = call @kernel_0(
// SMALL-NEXT:  call @kernel_1(%[[P]])
// SMALL-NEXT:  call @kernel_2(%[[P]],
func.func @main(%x: tensor<128x32xf32>, %w: tensor<32x32xf32>) -> (tensor<32xf32>, tensor<32xf32>, tensor<32xf32>) {
  %0 = "nova.matmul"(%x, %w) : (tensor<128x32xf32>, tensor<32x32xf32>) -> tensor<128x32xf32>
  %1 = "nova.tanh"(%0) : (tensor<128x32xf32>) -> tensor<128x32xf32>
  %2 = "nova.sum"(%1) {axis = array<i64: 0>} : (tensor<128x32xf32>) -> tensor<32xf32>
  %3 = "nova.matmul"(%1, %w) : (tensor<128x32xf32>, tensor<32x32xf32>) -> tensor<128x32xf32>
  %4 = "nova.tanh"(%3) : (tensor<128x32xf32>) -> tensor<128x32xf32>
  %5 = "nova.sum"(%4) {axis = array<i64: 0>} : (tensor<128x32xf32>) -> tensor<32xf32>
  %6 = "nova.matmul"(%4, %w) : (tensor<128x32xf32>, tensor<32x32xf32>) -> tensor<128x32xf32>
  %7 = "nova.tanh"(%6) : (tensor<128x32xf32>) -> tensor<128x32xf32>
  %8 = "nova.sum"(%7) {axis = array<i64: 0>} : (tensor<128x32xf32>) -> tensor<32xf32>
  return %2, %5, %8 : tensor<32xf32>, tensor<32xf32>, tensor<32xf32>
}
