package wire

// kind is how one field of a request lies on the wire.
type kind uint8

const (
	fixed  kind = iota // size bytes
	text               // string
	blob               // bytes
	list               // array of structs, or of one primitive
	option             // struct behind a presence byte
)

// field is one field of a request. Tagged fields are not listed: a tag section bounds itself.
type field struct {
	kind     kind
	from, to int16 // versions that have it, both inclusive; to 0: all from there on
	null     int16 // first version that may be null, plus one; 0: never
	size     int   // of fixed; least bytes of an element of list
	prim     bool  // list of a primitive: no tag section behind the element
	sub      []field
}

func num(size int) field               { return field{kind: fixed, size: size} }
func str() field                       { return field{kind: text} }
func data() field                      { return field{kind: blob} }
func strs() field                      { return field{kind: list, size: 1, prim: true, sub: []field{str()}} }
func nums(size int) field              { return field{kind: list, size: size, prim: true, sub: []field{num(size)}} }
func array(size int, f ...field) field { return field{kind: list, size: size, sub: f} }

// since and until give the versions of a field, orNull the first version that may be null.
func (f field) since(v int16) field  { f.from = v; return f }
func (f field) until(v int16) field  { f.to = v; return f }
func (f field) orNull(v int16) field { f.null = v + 1; return f }

func (f *field) in(v int16) bool       { return v >= f.from && (f.to == 0 || v <= f.to) }
func (f *field) nullable(v int16) bool { return f.null != 0 && v >= f.null-1 }

// Request layouts, as far as counts and lengths go. A test encodes requests of every version with kmsg and walks
// them, and a fuzz target holds the two against each other.
var (
	fetchFields = []field{
		num(4).until(14), num(4), num(4), num(4), num(1), num(4).since(7), num(4).since(7),
		array(2,
			str().until(12), num(16).since(13),
			array(16,
				num(4), num(4).since(9), num(8), num(4).since(12), num(8).since(5), num(4),
			),
		),
		array(2, str().until(12), num(16).since(13), nums(4)).since(7),
		str().since(11),
	}
	listOffsetsFields = []field{
		num(4), num(1).since(2),
		array(2, str(), array(12, num(4), num(4).since(4), num(8))),
		num(4).since(10),
	}
	metadataFields = []field{
		array(1, num(16).since(10), str().orNull(10)).orNull(1),
		num(1).since(4), num(1).since(8).until(10), num(1).since(8),
	}
	findCoordinatorFields = []field{
		str().until(3), num(1).since(1), strs().since(4),
	}
	saslHandshakeFields    = []field{str()}
	saslAuthenticateFields = []field{data()}
	apiVersionsFields      = []field{
		str().since(3), str().since(3), str().since(5).orNull(5), num(4).since(5),
	}
	createTopicsFields = []field{
		array(9,
			str(), num(4), num(2),
			array(5, num(4), nums(4)),
			array(2, str(), str().orNull(0)),
		),
		num(4), num(1),
	}
	deleteTopicsFields = []field{
		strs().until(5), array(17, str().orNull(6), num(16)).since(6), num(4),
	}
	deleteRecordsFields = []field{
		array(2, str(), array(12, num(4), num(8))), num(4),
	}
	initProducerIDFields = []field{
		str().orNull(0), num(4), num(8).since(3), num(2).since(3),
	}
	offsetForLeaderEpochFields = []field{
		num(4).since(3), array(2, str(), array(12, num(4), num(4), num(4))),
	}
	describeConfigsFields = []field{
		array(3, num(1), str(), strs().orNull(0)), num(1), num(1).since(3),
	}
	describeACLsFields = []field{
		num(1), str().orNull(0), num(1), str().orNull(0), str().orNull(0), num(1), num(1),
	}
	createACLsFields = []field{
		array(7, num(1), str(), num(1), str(), str(), num(1), num(1)),
	}
	deleteACLsFields = []field{
		array(7, num(1), str().orNull(0), num(1), str().orNull(0), str().orNull(0), num(1), num(1)),
	}
	alterReplicaLogDirsFields = []field{
		array(2, str(), array(2, str(), nums(4))),
	}
	alterConfigsFields = []field{
		array(3, num(1), str(), array(2, str(), str().orNull(0))), num(1),
	}
	incrementalAlterConfigsFields = []field{
		array(3, num(1), str(), array(3, str(), num(1), str().orNull(0))), num(1),
	}
	describeLogDirsFields = []field{
		array(2, str(), nums(4)).orNull(0),
	}
	createPartitionsFields = []field{
		array(6, str(), num(4), array(1, nums(4)).orNull(0)), num(4), num(1),
	}
	electLeadersFields = []field{
		num(1).since(1), array(2, str(), nums(4)).orNull(0), num(4),
	}
	alterPartitionReassignmentsFields = []field{
		num(4), num(1).since(1),
		array(2, str(), array(5, num(4), nums(4).orNull(0))),
	}
	describeClientQuotasFields = []field{
		array(3, str(), num(1), str().orNull(0)), num(1),
	}
	alterClientQuotasFields = []field{
		array(2,
			array(2, str(), str().orNull(0)),
			array(10, str(), num(8), num(1)),
		),
		num(1),
	}
	describeUserScramFields = []field{
		array(1, str()).orNull(0),
	}
	alterUserScramFields = []field{
		array(2, str(), num(1)),
		array(8, str(), num(1), num(4), data(), data()),
	}
	listPartitionReassignmentsFields = []field{
		num(4), array(2, str(), nums(4)).orNull(0),
	}
	describeQuorumFields = []field{
		array(2, str(), array(4, num(4))),
	}
	updateFeaturesFields = []field{
		num(4), array(4, str(), num(2), num(1)), num(1).since(1),
	}
	describeClusterFields = []field{
		num(1), num(1).since(1), num(1).since(2),
	}
	describeProducersFields = []field{
		array(2, str(), nums(4)),
	}
	listConfigResourcesFields = []field{
		nums(1).since(1),
	}
	describeTopicPartitionsFields = []field{
		array(2, str()), num(4), {kind: option, sub: []field{str(), num(4)}},
	}
)

// walk reads the fields of one struct, its tag section included. It allocates nothing.
func (c *cursor) walk(fields []field) {
	for i := range fields {
		if f := &fields[i]; f.in(c.version) && !c.bad {
			c.field(f)
		}
	}
	if c.flexible && !c.bad {
		c.tags()
	}
}

func (c *cursor) field(f *field) {
	switch f.kind {
	case fixed:
		c.span(f.size)
	case text:
		if _, null := c.str(); null && !f.nullable(c.version) {
			c.fail()
		}
	case blob:
		if _, null := c.bytes(); null && !f.nullable(c.version) {
			c.fail()
		}
	case list:
		n, null := c.count(f.size)
		if null && !f.nullable(c.version) {
			c.fail()
		}
		for ; n > 0 && !c.bad; n-- {
			if f.prim {
				c.field(&f.sub[0])
			} else {
				c.walk(f.sub)
			}
		}
	case option:
		if p := c.span(1); len(p) == 1 && int8(p[0]) >= 0 {
			c.walk(f.sub)
		}
	}
}
