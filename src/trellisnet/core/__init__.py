"""The mathematics of trellis networks; knows nothing of tasks.

Read `naive.py` first: the paper's equations as loops. Then `trellis.py`, the module; `plan.py`, which cells a call
needs; `state.py`, what goes from call to call; and `engine/plain.py`, the same with tensors. Everything else in
`engine/` is how a call is run fast, behind one function, `engine.run`. `forms.py` checks a call; `solver.py` runs
layers until they converge. `attention.py` adds attention to the taps (`taps.py`), and `bridge.py` shows that the taps
are attention already.

Words, each with one meaning:

- *path*: the order in which the cells of the grid are computed, and where a cell finds what lies before its step:
  by *layers* (the paper), by *sweeps* along time within a layer, or by *steps* of time. See `naive.py`.
- *step*: a position in time. T steps, B sequences.
- *level*: the states at one height of the grid, at all steps. Level 0 lies below the first layer, and is zero.
- *layer*: computes level i+1 from level i. A call has `depth` layers; all of them share the weights of the *kernel*.
- *cell*: maps the pre-activations of one step of one layer to its *hidden state* h, which the next layer multiplies,
  and its *memory* c, which only cells read. (The option `memory` is about storage instead.)
- *gate*: one of the G pre-activations per channel, or what the cell makes of it in place.
- *tap*: one of the K steps of the level below that a layer reads, a *dilation* apart. The oldest is the first.
- *block*: channels whose gates are one matrix; a dense kernel has one, a mixed-group kernel one per group. Its *terms*
  are its products, each of some channels of one tap.
- *injection*: what the input adds to a layer.
- *context*: the rows of a level before the first step of a call. A *state* is the contexts of all levels.
- *tail* and *cone*: the wanted last steps of a call, and the cells that they need. A *plan* lists the cells.
- *row*: the place of a step in the storage of a level: first its context, then the computed steps.
- *tile*: consecutive steps of a layer that are computed together. *Workspace*: the memory in which that happens.
"""
