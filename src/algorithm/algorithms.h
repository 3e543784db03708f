// The entries of the registry; each is defined in the file named after its algorithm.
#pragma once

#include "algorithm/algorithm.h"

namespace unisono::algorithm {

// ring_all_reduce.cc ... ring_reduce.cc: Tables V to VII, IX and X of "Demystifying NCCL".
extern const Entry ring_all_reduce;
extern const Entry ring_all_gather;
extern const Entry ring_reduce_scatter;
extern const Entry ring_broadcast;
extern const Entry ring_reduce;

// Both directions of the ring, half of the data in each.
extern const Entry bidirectional_ring_all_reduce;
extern const Entry bidirectional_ring_all_gather;
extern const Entry bidirectional_ring_reduce_scatter;

// Table VIII over a double binary tree of nodes.
extern const Entry tree_all_reduce;

// Two levels; named after what is done between nodes and, where there is a choice, inside them.
extern const Entry hierarchical_ring_all_gather;
extern const Entry hierarchical_recursive_all_gather;
extern const Entry hierarchical_bruck_all_gather;
extern const Entry hierarchical_pat_all_gather;
extern const Entry hierarchical_ring_direct_all_gather;
extern const Entry hierarchical_recursive_direct_all_gather;
extern const Entry hierarchical_ring_reduce_scatter;
extern const Entry hierarchical_recursive_reduce_scatter;
extern const Entry hierarchical_pat_reduce_scatter;
extern const Entry hierarchical_ring_direct_reduce_scatter;
extern const Entry hierarchical_recursive_direct_reduce_scatter;
extern const Entry hierarchical_ring_all_reduce;
extern const Entry hierarchical_recursive_all_reduce;
extern const Entry hierarchical_pat_all_reduce;
extern const Entry hierarchical_ring_direct_all_reduce;
extern const Entry hierarchical_recursive_direct_all_reduce;

// A logarithmic number of steps.
extern const Entry recursive_doubling_all_gather_near;
extern const Entry recursive_doubling_all_gather_far;
extern const Entry bruck_all_gather;
extern const Entry recursive_halving_reduce_scatter;
extern const Entry rabenseifner_all_reduce;
extern const Entry recursive_doubling_all_reduce;
extern const Entry pat_all_gather;
extern const Entry pat_reduce_scatter;
extern const Entry pat8_all_gather;
extern const Entry pat8_reduce_scatter;

// Everybody to everybody at once.
extern const Entry all_pairs_one_shot_all_reduce;
extern const Entry all_pairs_two_shot_all_reduce;
extern const Entry direct_all_gather;
extern const Entry direct_reduce_scatter;
extern const Entry two_shot_broadcast;
extern const Entry two_shot_reduce;

extern const Entry binomial_broadcast;
extern const Entry binomial_reduce;
extern const Entry binomial_gather;
extern const Entry binomial_scatter;
extern const Entry knomial_broadcast;
extern const Entry knomial_reduce;
extern const Entry knomial_gather;
extern const Entry knomial_scatter;

extern const Entry pairwise_all_to_all;
extern const Entry direct_all_to_all;
extern const Entry bruck_all_to_all;
extern const Entry direct_all_to_all_v;
extern const Entry pairwise_all_to_all_v;

extern const Entry dissemination_barrier;

}  // namespace unisono::algorithm
