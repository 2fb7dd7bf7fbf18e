"""The errors published for the models of Sukhbaatar et al. 2015, in percent."""

NAMES = (
  '1 supporting fact', '2 supporting facts', '3 supporting facts',
  '2 argument relations', '3 argument relations', 'yes/no questions',
  'counting', 'lists/sets', 'simple negation', 'indefinite knowledge',
  'basic coreference', 'conjunction', 'compound coreference',
  'time reasoning', 'basic deduction', 'basic induction',
  'positional reasoning', 'size reasoning', 'path finding',
  "agent's motivation",
)  # fmt: skip
# Table 1: preset -> test error of each task, with 1,000 training questions.
TABLE_1 = {
  'facts': (
    0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 15.0, 9.0, 0.0, 2.0,
    0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 35.0, 5.0, 64.0, 0.0,
  ),
  'heuristic': (
    0.1, 42.8, 76.4, 40.3, 16.3, 51.0, 36.1, 37.8, 35.9, 68.7,
    30.0, 10.1, 19.7, 18.3, 64.8, 50.5, 50.9, 51.3, 100.0, 3.6,
  ),
  'bow': (
    0.6, 17.6, 71.0, 32.0, 18.3, 8.7, 23.5, 11.4, 21.1, 22.8,
    4.1, 0.3, 10.5, 1.3, 24.3, 52.0, 45.4, 48.1, 89.7, 0.1,
  ),
  'pe': (
    0.1, 21.6, 64.2, 3.8, 14.1, 7.9, 21.6, 12.6, 23.3, 17.4,
    4.3, 0.3, 9.9, 1.8, 0.0, 52.1, 50.1, 13.6, 87.4, 0.0,
  ),
  'pe_ls': (
    0.2, 12.8, 58.8, 11.6, 15.7, 8.7, 20.3, 12.7, 17.0, 18.6,
    0.0, 0.1, 0.3, 2.0, 0.0, 1.6, 49.0, 10.1, 85.6, 0.0,
  ),
  'pe_ls_rn': (
    0.0, 8.3, 40.3, 2.8, 13.1, 7.6, 17.3, 10.0, 13.2, 15.1,
    0.9, 0.2, 0.4, 1.7, 0.0, 1.3, 51.0, 11.1, 82.8, 0.0,
  ),
  'joint_1_hop': (
    0.8, 62.0, 76.9, 22.8, 11.0, 7.2, 15.9, 13.2, 5.1, 10.6,
    8.4, 0.4, 6.3, 36.9, 46.4, 47.4, 44.4, 9.6, 90.7, 0.0,
  ),
  'joint_2_hops': (
    0.0, 15.6, 31.6, 2.2, 13.4, 2.3, 25.4, 11.7, 2.0, 5.0,
    1.2, 0.0, 0.2, 8.1, 0.5, 51.3, 41.2, 10.3, 89.9, 0.1,
  ),
  'joint_3_hops': (
    0.1, 14.0, 33.1, 5.7, 14.8, 3.3, 17.9, 10.1, 3.1, 6.6,
    0.9, 0.3, 1.4, 8.2, 0.0, 3.5, 44.5, 9.2, 90.2, 0.0,
  ),
  'joint_ls_rn': (
    0.0, 11.4, 21.9, 13.4, 14.4, 2.8, 18.3, 9.3, 1.9, 6.5,
    0.3, 0.1, 0.2, 6.9, 0.0, 2.7, 40.4, 9.4, 88.0, 0.0,
  ),
  'joint_layerwise': (
    0.1, 18.8, 31.7, 17.5, 12.9, 2.0, 10.1, 6.1, 1.5, 2.6,
    3.3, 0.0, 0.5, 2.0, 1.8, 51.0, 42.6, 9.2, 90.6, 0.2,
  ),
}  # fmt: skip
# The same of the best model with 10,000, as listed by Henaff et al. 2017.
LISTED = {
  'pe_ls_rn_lw_relu_10k': (
    0.0, 0.3, 2.1, 0.0, 0.8, 0.1, 2.0, 0.9, 0.3, 0.0,
    0.0, 0.0, 0.0, 0.2, 0.0, 51.8, 18.6, 5.3, 2.3, 0.0,
  ),
}  # fmt: skip
# The last lines of table 1: preset -> mean test error and number of failed
# tasks, counted before rounding, with 1,000 and with 10,000 training questions.
SUMMARY = {
  'facts': (6.7, 4),
  'heuristic': (40.2, 18),
  'bow': (25.1, 15),
  'pe': (20.3, 13),
  'pe_ls': (16.3, 12),
  'pe_ls_rn': (13.9, 11),
  'joint_1_hop': (25.8, 17),
  'joint_2_hops': (15.6, 11),
  'joint_3_hops': (13.3, 11),
  'joint_ls_rn': (12.4, 11),
  'joint_layerwise': (15.2, 10),
  'facts_10k': (3.2, 2),
  'heuristic_10k': (39.2, 17),
  'bow_10k': (15.4, 9),
  'pe_10k': (9.4, 6),
  'pe_ls_10k': (7.2, 4),
  'pe_ls_rn_10k': (6.6, 4),
  'pe_ls_rn_lw_relu_10k': (4.2, 3),  # from the text, and from LISTED
  'joint_1_hop_10k': (24.5, 16),
  'joint_2_hops_10k': (10.9, 7),
  'joint_3_hops_10k': (7.9, 6),
  'joint_ls_rn_10k': (7.5, 6),
  'joint_layerwise_10k': (11.0, 6),
}
