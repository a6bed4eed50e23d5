// RUN: %nova-opt %s --nova-to-linalg --linalg-to-kernels --kernels-to-buffers --buffers-to-loops='target=x86_64-v3' --loops-to-llvm='target=x86_64-v3' | %filecheck %s

// Nothing but LLVM, nothing of main, no calls but the kernel's own body, no heap.
// CHECK-LABEL: llvm.func @kernel_0(
// CHECK: llvm.call @kernel_0_body
// CHECK: llvm.func internal @kernel_0_body(
// CHECK: llvm.br
// CHECK-NOT: {{math\.|arith\.|scf\.|memref\.|unrealized}}
// CHECK-NOT: llvm.call
// CHECK-NOT: @main
func.func @main(%x: tensor<8x16xbf16>) -> tensor<8x16xbf16> {
  %0 = "nova.softmax"(%x) : (tensor<8x16xbf16>) -> tensor<8x16xbf16>
  return %0 : tensor<8x16xbf16>
}
