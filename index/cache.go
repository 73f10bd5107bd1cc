package index

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/ristretto/v2"
)

// meanCost is the weight of an index the number of admission counters is derived from.
const meanCost = 4096

// Cache holds Sealed values by their cost in bytes. It may forget any value at any time and may never take one in, so
// load must be repeatable. All methods may be called from any goroutine. Close ends its goroutines; a closed cache only
// loads.
type Cache struct {
	r    *ristretto.Cache[uint64, *Sealed]
	keys atomic.Uint64

	mu      sync.Mutex
	loading map[uint64]*flight

	gate   sync.RWMutex // write side: Close. ristretto panics on a Set or Del that meets its Close
	closed bool
}

// errUnfinished is what waiters get if the load they wait for panicked.
var errUnfinished = errors.New("index: load did not finish")

// flight is one load that others of the same key wait for.
type flight struct {
	done chan struct{}
	x    *Sealed
	err  error
}

// NewCache returns a cache for bytesMax bytes of indexes.
func NewCache(bytesMax int64) (*Cache, error) {
	r, err := ristretto.NewCache(&ristretto.Config[uint64, *Sealed]{
		NumCounters:        max(1000, 10*bytesMax/meanCost),
		MaxCost:            bytesMax,
		BufferItems:        64,
		IgnoreInternalCost: true,
	})
	if err != nil {
		return nil, err
	}
	return &Cache{r: r, loading: map[uint64]*flight{}}, nil
}

// NextKey returns a key nobody got before. A segment takes a new one whenever its index files change, so a load that
// ends late cannot bring an old index back.
func (c *Cache) NextKey() uint64 { return c.keys.Add(1) }

// Get returns the value of key, calling load if the cache does not hold it. Callers that miss at the same time share
// one load and its error. load runs without a lock of the cache and must not call Get with the same key.
func (c *Cache) Get(key uint64, load func() (*Sealed, error)) (*Sealed, error) {
	if x, ok := c.r.Get(key); ok {
		return x, nil
	}
	c.mu.Lock()
	if f := c.loading[key]; f != nil {
		c.mu.Unlock()
		<-f.done
		return f.x, f.err
	}
	f := &flight{done: make(chan struct{}), err: errUnfinished}
	c.loading[key] = f
	c.mu.Unlock()

	defer func() {
		c.mu.Lock()
		delete(c.loading, key)
		c.mu.Unlock()
		close(f.done)
	}()
	f.x, f.err = load()
	if f.err == nil {
		c.gate.RLock()
		defer c.gate.RUnlock()
		if !c.closed {
			c.r.Set(key, f.x, f.x.Cost())
		}
	}
	return f.x, f.err
}

// Drop forgets key, which is not asked for again. It may wait for the cache's goroutine: never under Log.mu.
func (c *Cache) Drop(key uint64) {
	c.gate.RLock()
	defer c.gate.RUnlock()
	if !c.closed {
		c.r.Del(key)
	}
}

// Close empties the cache and ends its goroutines. No Get may overlap it; a late Drop may.
func (c *Cache) Close() {
	c.gate.Lock()
	defer c.gate.Unlock()
	if !c.closed {
		c.closed = true
		c.r.Close()
	}
}
