// RUN: %nova-opt %s --nova-to-linalg --linalg-to-device-kernels --kernels-to-buffers --buffers-to-device --device-to-outlined --outlined-to-nvvm | %filecheck %s
// RUN: %nova-opt %s --nova-to-linalg --linalg-to-device-kernels --kernels-to-buffers --buffers-to-device --device-to-outlined --outlined-to-nvvm=fast-math=true | %filecheck %s --check-prefix=FAST

// The device half is nothing but LLVM and NVVM: bare pointers, no library; the host half stays.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK: gpu.launch_func @kernel_0_kernel::@kernel_0_kernel
// CHECK: gpu.module @kernel_0_kernel {
// CHECK-NEXT: llvm.func @kernel_0_kernel(%{{.*}}: !llvm.ptr {llvm.noalias}, %{{.*}}: !llvm.ptr {llvm.noalias})
// CHECK-SAME: nvvm.kernel
// CHECK: nvvm.read.ptx.sreg.tid.x
// CHECK: llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr -> vector<8xbf16>
// CHECK-NOT: {{math\.|arith\.|scf\.|memref\.|unrealized|__nv_}}
// CHECK: llvm.return
// CHECK-LABEL: func.func @main(
// FAST: fastmathFlags = #llvm.fastmath<{{.*}}reassoc
func.func @main(%x: tensor<8x512xbf16>) -> tensor<8x512xbf16> {
  %0 = "nova.tanh"(%x) : (tensor<8x512xbf16>) -> tensor<8x512xbf16>
  %1 = "nova.mul"(%0, %x) : (tensor<8x512xbf16>, tensor<8x512xbf16>) -> tensor<8x512xbf16>
  return %1 : tensor<8x512xbf16>
}
