/* The kernels of flows, as PTX: the driver translates it, and knows cudaGraphSetConditional itself.
 *
 * Parameters are words of 8 bytes (cuda_flow.c). A copy has five: the two addresses, the size, and
 * the strides of the addresses by the position. One block runs `begin`, `next` and `select`. */
#include "gpu/cuda/cuda_flow_code.h"

/* Copies `%count` entries from parameter offset `%entry` on, at `%position`: thread `%first` of
 * `%threads`. `id` makes the labels unique. 16 bytes at a time if both addresses and the size
 * allow it, else 4, else 1. */
#define COPIES(id)                                                                                 \
    "copies_" id ":\n"                                                                             \
    "    setp.eq.u64 %p1, %count, 0;\n"                                                            \
    "    @%p1 bra done_" id ";\n"                                                                  \
    "    ld.param.u64 %to, [%entry];\n"                                                            \
    "    ld.param.u64 %from, [%entry+8];\n"                                                        \
    "    ld.param.u64 %size, [%entry+16];\n"                                                       \
    "    ld.param.u64 %a, [%entry+24];\n"                                                          \
    "    ld.param.u64 %b, [%entry+32];\n"                                                          \
    "    mad.lo.s64 %to, %a, %position, %to;\n"                                                    \
    "    mad.lo.s64 %from, %b, %position, %from;\n"                                                \
    "    or.b64 %a, %to, %from;\n"                                                                 \
    "    or.b64 %a, %a, %size;\n"                                                                  \
    "    and.b64 %b, %a, 15;\n"                                                                    \
    "    setp.ne.u64 %p1, %b, 0;\n"                                                                \
    "    @%p1 bra narrow_" id ";\n"                                                                \
    "    shl.b64 %at, %first, 4;\n"                                                                \
    "    shl.b64 %step, %threads, 4;\n"                                                            \
    "wide_" id ":\n"                                                                               \
    "    setp.ge.u64 %p1, %at, %size;\n"                                                           \
    "    @%p1 bra next_" id ";\n"                                                                  \
    "    add.s64 %a, %from, %at;\n"                                                                \
    "    ld.global.v2.u64 {%x, %y}, [%a];\n"                                                       \
    "    add.s64 %b, %to, %at;\n"                                                                  \
    "    st.global.v2.u64 [%b], {%x, %y};\n"                                                       \
    "    add.s64 %at, %at, %step;\n"                                                               \
    "    bra wide_" id ";\n"                                                                       \
    "narrow_" id ":\n"                                                                             \
    "    and.b64 %b, %a, 3;\n"                                                                     \
    "    setp.ne.u64 %p1, %b, 0;\n"                                                                \
    "    @%p1 bra single_" id ";\n"                                                                \
    "    shl.b64 %at, %first, 2;\n"                                                                \
    "    shl.b64 %step, %threads, 2;\n"                                                            \
    "words_" id ":\n"                                                                              \
    "    setp.ge.u64 %p1, %at, %size;\n"                                                           \
    "    @%p1 bra next_" id ";\n"                                                                  \
    "    add.s64 %a, %from, %at;\n"                                                                \
    "    ld.global.u32 %word, [%a];\n"                                                             \
    "    add.s64 %b, %to, %at;\n"                                                                  \
    "    st.global.u32 [%b], %word;\n"                                                             \
    "    add.s64 %at, %at, %step;\n"                                                               \
    "    bra words_" id ";\n"                                                                      \
    "single_" id ":\n"                                                                             \
    "    mov.u64 %at, %first;\n"                                                                   \
    "bytes_" id ":\n"                                                                              \
    "    setp.ge.u64 %p1, %at, %size;\n"                                                           \
    "    @%p1 bra next_" id ";\n"                                                                  \
    "    add.s64 %a, %from, %at;\n"                                                                \
    "    ld.global.u8 %word, [%a];\n"                                                              \
    "    add.s64 %b, %to, %at;\n"                                                                  \
    "    st.global.u8 [%b], %word;\n"                                                              \
    "    add.s64 %at, %at, %threads;\n"                                                            \
    "    bra bytes_" id ";\n"                                                                      \
    "next_" id ":\n"                                                                               \
    "    add.s64 %entry, %entry, 40;\n"                                                            \
    "    sub.s64 %count, %count, 1;\n"                                                             \
    "    bra copies_" id ";\n"                                                                     \
    "done_" id ":\n"

#define REGISTERS                                                                                  \
    "    .reg .pred %p<4>;\n"                                                                      \
    "    .reg .b32 %word, %thread, %value, %flag;\n"                                               \
    "    .reg .b64 %to, %from, %size, %a, %b, %x, %y, %at, %step, %first, %threads;\n"             \
    "    .reg .b64 %entry, %count, %position, %handle, %pointer, %length, %new, %rest;\n"

/* `%value` of the handle of the node is set by the first thread. */
#define SET_CONDITION(id)                                                                          \
    "    setp.ne.u32 %p2, %thread, 0;\n"                                                           \
    "    @%p2 bra set_" id ";\n"                                                                   \
    "    {\n"                                                                                      \
    "    .param .b64 handle;\n"                                                                    \
    "    st.param.b64 [handle], %handle;\n"                                                        \
    "    .param .b32 value;\n"                                                                     \
    "    st.param.b32 [value], %value;\n"                                                          \
    "    call.uni cudaGraphSetConditional, (handle, value);\n"                                     \
    "    }\n"                                                                                      \
    "set_" id ":\n"

/* The words of `begin` and `next`: 0 handle, 1 condition, 2 position, 3 the first position or the
 * step to the next, 4 length, 5 and 6 the numbers of copies before and after, 7 the copies. */
#define LOOP_WORDS(name, wait)                                                                     \
    "    mov.b64 %entry, " name ";\n"                                                              \
    "    ld.param.u64 %handle, [%entry];\n"                                                        \
    "    ld.param.u64 %pointer, [%entry+16];\n"                                                    \
    "    ld.param.u64 %length, [%entry+32];\n"                                                     \
    "    ld.param.u64 %count, [%entry+40];\n"                                                      \
    "    ld.param.u64 %rest, [%entry+48];\n"                                                       \
    "    mov.u32 %thread, %tid.x;\n"                                                               \
    "    cvt.u64.u32 %first, %thread;\n"                                                           \
    "    mov.u32 %word, %ntid.x;\n"                                                                \
    "    cvt.u64.u32 %threads, %word;\n"                                                           \
    "    setp.eq.u64 %p3, %pointer, 0;\n"                                                          \
    "    mov.u64 %position, 0;\n" wait

/* `%value`: whether the loop goes on, by its condition; and by `%new`, its next position. */
#define READ_CONDITION(name)                                                                       \
    "    mov.b64 %a, " name ";\n"                                                                  \
    "    ld.param.u64 %b, [%a+8];\n"                                                               \
    "    ld.global.u8 %word, [%b];\n"                                                              \
    "    setp.ne.u32 %p1, %word, 0;\n"                                                             \
    "    selp.u32 %value, 1, 0, %p1;\n"

#define CHECK_POSITION                                                                             \
    "    setp.lt.u64 %p1, %new, %length;\n"                                                        \
    "    selp.u32 %value, 1, 0, %p1;\n"

/* After the copies and a barrier: the new position, and the copies for it if the loop goes on. */
#define ENTER_POSITION(id)                                                                         \
    "    setp.ne.u32 %p2, %thread, 0;\n"                                                           \
    "    or.pred %p2, %p2, %p3;\n"                                                                 \
    "    @!%p2 st.global.u64 [%pointer], %new;\n"                                                  \
    "    setp.eq.u32 %p2, %value, 0;\n"                                                            \
    "    @%p2 ret;\n"                                                                              \
    "    mov.u64 %position, %new;\n"                                                               \
    "    mov.u64 %count, %rest;\n" COPIES(id) "    ret;\n"

/* The words are read before `wait`, memory after it. */
#define BEGIN(wait)                                                                                \
    ".visible .entry nova_flow_begin(\n"                                                           \
    "    .param .align 8 .b8 begin_words[696]\n"                                                   \
    ")\n"                                                                                          \
    "{\n" REGISTERS LOOP_WORDS("begin_words", wait) "    add.s64 %entry, %entry, 56;\n" COPIES(    \
        "enter") "    bar.sync 0;\n"                                                               \
                 "    @%p3 bra begin_condition;\n"                                                 \
                 "    mov.b64 %a, begin_words;\n"                                                  \
                 "    ld.param.u64 %new, [%a+24];\n" CHECK_POSITION "    bra begin_set;\n"         \
                 "begin_condition:\n"                                                              \
                 "    mov.u64 %new, 0;\n" READ_CONDITION(                                          \
                     "begin_words") "begin_set:\n" SET_CONDITION("begin")                          \
                     ENTER_POSITION("begin") "}\n"

/* The condition arrives during the copies. */
#define NEXT(wait)                                                                                 \
    ".visible .entry nova_flow_next(\n"                                                            \
    "    .param .align 8 .b8 next_words[696]\n"                                                    \
    ")\n"                                                                                          \
    "{\n" REGISTERS LOOP_WORDS(                                                                    \
        "next_words",                                                                              \
        wait) "    @%p3 bra next_condition;\n"                                                     \
              "    ld.global.u64 %position, [%pointer];\n"                                         \
              "    ld.param.u64 %new, [%entry+24];\n"                                              \
              "    add.s64 %new, %new, %position;\n" CHECK_POSITION "    bra next_copies;\n"       \
              "next_condition:\n"                                                                  \
              "    mov.u64 %new, 0;\n"                                                             \
              "    ld.param.u64 %b, [%entry+8];\n"                                                 \
              "    ld.global.u8 %flag, [%b];\n"                                                    \
              "next_copies:\n"                                                                     \
              "    add.s64 %entry, %entry, 56;\n" COPIES(                                          \
                  "store") "    @!%p3 bra next_set;\n"                                             \
                           "    setp.ne.u32 %p1, %flag, 0;\n"                                      \
                           "    selp.u32 %value, 1, 0, %p1;\n"                                     \
                           "next_set:\n" SET_CONDITION("next") "    bar.sync 0;\n" ENTER_POSITION( \
                               "load") "}\n"

/* 0: the address of the position or 0, 1: the copies, one for each row of blocks */
#define COPY(wait)                                                                                 \
    ".visible .entry nova_flow_copy(\n"                                                            \
    "    .param .align 8 .b8 copy_words[648]\n"                                                    \
    ")\n"                                                                                          \
    "{\n" REGISTERS "    .reg .b32 %block, %blocks, %row;\n"                                       \
    "    mov.b64 %entry, copy_words;\n"                                                            \
    "    ld.param.u64 %pointer, [%entry];\n"                                                       \
    "    mov.u64 %position, 0;\n"                                                                  \
    "    setp.eq.u64 %p3, %pointer, 0;\n" wait "    @!%p3 ld.global.u64 %position, [%pointer];\n"  \
    "    mov.u32 %row, %ctaid.y;\n"                                                                \
    "    mul.wide.u32 %a, %row, 40;\n"                                                             \
    "    add.s64 %entry, %entry, %a;\n"                                                            \
    "    add.s64 %entry, %entry, 8;\n"                                                             \
    "    mov.u32 %thread, %tid.x;\n"                                                               \
    "    mov.u32 %word, %ntid.x;\n"                                                                \
    "    mov.u32 %block, %ctaid.x;\n"                                                              \
    "    mov.u32 %blocks, %nctaid.x;\n"                                                            \
    "    cvt.u64.u32 %a, %thread;\n"                                                               \
    "    mul.wide.u32 %first, %block, %word;\n"                                                    \
    "    add.s64 %first, %first, %a;\n"                                                            \
    "    mul.wide.u32 %threads, %blocks, %word;\n"                                                 \
    "    mov.u64 %count, 1;\n" COPIES("copy") "    ret;\n"                                         \
                                              "}\n"

/* 0 handle, 1 selector, 2 its size, 3 number of branches, 4: the branch whose node this is, or -1:
 * the node has all */
#define SELECT(wait)                                                                               \
    ".visible .entry nova_flow_select(\n"                                                          \
    "    .param .align 8 .b8 select_words[40]\n"                                                   \
    ")\n"                                                                                          \
    "{\n" REGISTERS "    mov.b64 %entry, select_words;\n"                                          \
    "    ld.param.u64 %handle, [%entry];\n"                                                        \
    "    ld.param.u64 %pointer, [%entry+8];\n"                                                     \
    "    ld.param.u64 %size, [%entry+16];\n"                                                       \
    "    ld.param.u64 %count, [%entry+24];\n"                                                      \
    "    ld.param.u64 %rest, [%entry+32];\n"                                                       \
    "    mov.u32 %thread, %tid.x;\n"                                                               \
    "    setp.eq.u64 %p1, %size, 8;\n" wait "    @%p1 ld.global.u64 %a, [%pointer];\n"             \
    "    @!%p1 ld.global.u8 %a, [%pointer];\n"                                                     \
    "    max.s64 %a, %a, 0;\n"                                                                     \
    "    sub.s64 %b, %count, 1;\n"                                                                 \
    "    min.s64 %a, %a, %b;\n"                                                                    \
    "    cvt.u32.u64 %value, %a;\n"                                                                \
    "    setp.lt.s64 %p1, %rest, 0;\n"                                                             \
    "    @%p1 bra select_set;\n"                                                                   \
    "    setp.eq.s64 %p1, %a, %rest;\n"                                                            \
    "    selp.u32 %value, 1, 0, %p1;\n"                                                            \
    "select_set:\n" SET_CONDITION("select") "    ret;\n"                                           \
                                            "}\n"

#define MODULE(version, target, wait)                                                              \
    ".version " version "\n"                                                                       \
    ".target " target "\n"                                                                         \
    ".address_size 64\n"                                                                           \
    ".extern .func cudaGraphSetConditional\n"                                                      \
    "(\n"                                                                                          \
    "    .param .b64 handle,\n"                                                                    \
    "    .param .b32 value\n"                                                                      \
    ");\n" BEGIN(wait) NEXT(wait) COPY(wait) SELECT(wait)

const char nova_cuda_flow_code[] = MODULE("7.0", "sm_70", "");

const char nova_cuda_waiting_flow_code[] = MODULE("7.8", "sm_90", "    griddepcontrol.wait;\n");
