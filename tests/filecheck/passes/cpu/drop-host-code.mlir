// RUN: %nova-opt %s --drop-host-code | %filecheck %s

// By now main is a table and constants are a section: only kernels are left.
// CHECK-LABEL: module {
// CHECK-NEXT: func.func private @k(
// CHECK-NOT: memref.global
// CHECK-NOT: @main
memref.global "private" constant @c : memref<2xf32> = dense<1.0>
func.func private @k(%x: memref<2xf32>, %begin: index, %end: index) attributes {nova.kernel} {
  return
}
func.func @main(%ws: memref<0xi8>) {
  %c0 = arith.constant 0 : index
  %0 = memref.get_global @c : memref<2xf32>
  call @k(%0, %c0, %c0) : (memref<2xf32>, index, index) -> ()
  return
}

// What kernels call is code as well.
// CHECK: func.func private @part() attributes {nova.shared}
func.func private @part() attributes {nova.shared} {
  return
}
