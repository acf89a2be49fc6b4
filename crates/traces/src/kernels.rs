//! What kernels do, by their names: a name is all that a profiler keeps of a kernel.

use memtrace_model::DurationNs;
use serde::Serialize;

/// What a kernel does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelKind {
    /// Multiplies matrices, or convolves.
    Gemm,
    /// An attention kernel, fused or not.
    Attention,
    /// Moves data between ranks.
    Communication,
    /// Copies or fills memory.
    Memcpy,
    /// Computes each element from few others: activations, norms, reductions.
    Elementwise,
    /// A kernel of no other kind.
    Other,
}

/// The kinds in the order of their numbers.
pub(super) const KINDS: [KernelKind; 6] = [
    KernelKind::Gemm,
    KernelKind::Attention,
    KernelKind::Communication,
    KernelKind::Memcpy,
    KernelKind::Elementwise,
    KernelKind::Other,
];

/// Parts of names, in small letters. The first kind that has one counts: kernels of attention are made
/// of parts that multiply matrices, and those that communicate of parts that reduce.
const PARTS: [(KernelKind, &[&str]); 5] = [
    (KernelKind::Memcpy, &["memcpy", "memset"]),
    (
        KernelKind::Communication,
        &[
            "nccl",
            "rccl",
            "allreduce",
            "all_reduce",
            "allgather",
            "all_gather",
            "reducescatter",
            "reduce_scatter",
            "alltoall",
            "all_to_all",
            "cross_device_reduce",
            "nvshmem",
            "deep_ep",
        ],
    ),
    (
        KernelKind::Attention,
        &[
            "attention",
            "attn",
            "flash_fwd",
            "flash_bwd",
            "flash::",
            "flashmla",
            "fmha",
            "batchdecode",
            "batchprefill",
        ],
    ),
    (
        KernelKind::Gemm,
        &[
            "gemm",
            "gemv",
            "cutlass",
            "cublas",
            "nvjet",
            "xmma",
            "wgmma",
            "cijk_",
            "matmul",
            "splitk",
            "triton_mm",
            "triton_tem",
            "fused_moe",
            "conv2d",
            "convolve",
            "cudnn",
        ],
    ),
    (
        KernelKind::Elementwise,
        &[
            "elementwise",
            "element_wise",
            "vectorized",
            "reduce_kernel",
            "triton_poi",
            "triton_red",
            "triton_per",
            "norm",
            "softmax",
            "activation",
            "silu",
            "gelu",
            "rotary",
            "fill",
            "index",
            "gather",
            "scatter",
            "cat_array",
            "catarray",
            "copy_kernel",
            "at::native::",
        ],
    ),
];

impl KernelKind {
    /// That of a kernel, or a copy, by its name.
    pub(super) fn of(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        let kind = PARTS.iter().find(|(_, parts)| has(parts));
        kind.map_or(Self::Other, |(kind, _)| *kind)
    }

    /// For a person.
    pub(super) fn in_words(self) -> &'static str {
        match self {
            Self::Gemm => "GEMM",
            Self::Attention => "attention",
            Self::Communication => "communication",
            Self::Memcpy => "memcpy, memset",
            Self::Elementwise => "element-wise",
            Self::Other => "other",
        }
    }

    /// Whether it computes.
    pub(super) fn is_compute(self) -> bool {
        !matches!(self, Self::Communication | Self::Memcpy)
    }
}

/// What the kernels of a kind came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KindTotal {
    /// What they do.
    pub kind: KernelKind,
    /// How many ran.
    pub count: u64,
    /// Their time in all.
    pub total_ns: DurationNs,
}

/// Adds up while events come.
#[derive(Debug, Default)]
pub(super) struct KindTotals([(u64, i64); KINDS.len()]);

impl KindTotals {
    pub(super) fn take(&mut self, kind: KernelKind, ns: i64) {
        let (count, total) = &mut self.0[kind as usize];
        *count += 1;
        *total = total.saturating_add(ns);
    }

    /// Those that there are, what took most first.
    pub(super) fn reported(&self) -> Vec<KindTotal> {
        let all = KINDS.into_iter().zip(self.0);
        let mut there: Vec<KindTotal> = all
            .filter(|(_, (count, _))| *count > 0)
            .map(|(kind, (count, ns))| KindTotal {
                kind,
                count,
                total_ns: DurationNs(ns),
            })
            .collect();
        there.sort_by_key(|one| std::cmp::Reverse(one.total_ns));
        there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_stands_where_its_number_says() {
        for (place, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, place);
        }
    }

    #[test]
    fn kernels_as_libraries_name_them_are_of_their_kinds() {
        let cases = [
            ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", KernelKind::Gemm),
            (
                "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT",
                KernelKind::Gemm,
            ),
            ("void gemv2T_kernel_val<int, int, float>", KernelKind::Gemm),
            (
                "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>",
                KernelKind::Gemm,
            ),
            ("Cijk_Alik_Bljk_HHS_BH_MT128x128x32", KernelKind::Gemm),
            (
                "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<cutlass::half_t>>",
                KernelKind::Attention,
            ),
            ("fmha_cutlassF_bf16_aligned_64x64", KernelKind::Attention),
            ("kernel_unified_attention_2d", KernelKind::Attention),
            (
                "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                KernelKind::Communication,
            ),
            (
                "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>",
                KernelKind::Communication,
            ),
            ("Memcpy HtoD (Pageable -> Device)", KernelKind::Memcpy),
            ("Memset (Device)", KernelKind::Memcpy),
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor>",
                KernelKind::Elementwise,
            ),
            ("triton_poi_fused_add_mul_0", KernelKind::Elementwise),
            (
                "void vllm::rms_norm_kernel<c10::BFloat16>",
                KernelKind::Elementwise,
            ),
            ("my_kernel", KernelKind::Other),
        ];
        for (name, kind) in cases {
            assert_eq!(KernelKind::of(name), kind, "{name}");
        }
    }
}
