package buf

const (
	classMin    = 512     // bytes of the smallest class
	classMax    = 4 << 20 // bytes of the largest class; larger buffers are made and left to the collector
	doublings   = 13      // classMax = classMin << doublings
	perDoubling = 4       // classes per doubling: at most a fifth of a pooled buffer is unused
	idlePerList = 64      // buffers kept idle in one class at most

	classes = doublings*perDoubling + 1
)
