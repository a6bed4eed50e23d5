// RUN: not %nova-opt %s --allocate-scratch 2>&1 | %filecheck %s

// CHECK: error: @k has its scratch placed already
func.func private @k(%begin: index, %end: index) attributes {nova.kernel, nova.scratch_offsets = array<i64: 0>} {
  return
}
