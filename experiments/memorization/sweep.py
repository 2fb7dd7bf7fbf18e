"""The settings of copy, reverse and double: table 1's, and for a laptop."""

from experiments.learn_to_execute import sweep

# In minutes on two CPU cores.
QUICK = sweep.QUICK | {'task': 'reverse', 'max_length': 5}

PRESETS = {
    'quick': QUICK,
    'quick_copy': QUICK | {'task': 'copy'},
    'quick_double': QUICK | {'task': 'double'},
    'quick_lstm': QUICK
    | {'core': {'name': 'lstm', 'num_layers': 2, 'hidden_size': 128}},
    'quick_entnet': QUICK
    | {'core': {'name': 'lstm_bank', 'num_cells': 4, 'total_size': 256}},
    'quick_dnc': QUICK
    | {
        'core': {
            'name': 'dnc',
            'memory_size': 16,
            'word_size': 16,
            'num_reads': 2,
            'controller': 'feed_forward',
            'num_layers': 2,
            'hidden_size': 128,
        }
    },
    **sweep.TABLE_1_MEMORIZATION,
}

SWEEPS = {
    # All four cores on one task, the relational memory on the others.
    'quick_table': {
        'rmc_copy': {'preset': 'quick_copy'},
        'rmc_reverse': {'preset': 'quick'},
        'rmc_double': {'preset': 'quick_double'},
        'lstm_reverse': {'preset': 'quick_lstm'},
        'entnet_reverse': {'preset': 'quick_entnet'},
        'dnc_reverse': {'preset': 'quick_dnc'},
    },
    'table_1': {name: {'preset': name} for name in sweep.TABLE_1_MEMORIZATION},
}
