package wire

// Request layouts of groups and transactions, as far as counts and lengths go.
var (
	offsetCommitFields = []field{
		str(), num(4), str(), str().since(7).orNull(7), num(8).until(4),
		array(2,
			str().until(9), num(16).since(10),
			array(14, num(4), num(8), num(4).since(6), str().orNull(0)),
		),
	}
	offsetFetchFields = []field{
		str().until(7),
		array(2, str(), nums(4)).until(7).orNull(2),
		array(2,
			str(), str().since(9).orNull(9), num(4).since(9),
			array(2, str().until(9), num(16).since(10), nums(4)).orNull(8),
		).since(8),
		num(1).since(7),
	}
	joinGroupFields = []field{
		str(), num(4), num(4).since(1), str(), str().since(5).orNull(5), str(),
		array(2, str(), data()),
		str().since(8).orNull(8),
	}
	heartbeatFields = []field{
		str(), num(4), str(), str().since(3).orNull(3),
	}
	leaveGroupFields = []field{
		str(), str().until(2),
		array(2, str(), str().orNull(3), str().since(5).orNull(5)).since(3),
	}
	syncGroupFields = []field{
		str(), num(4), str(), str().since(3).orNull(3), str().since(5).orNull(5), str().since(5).orNull(5),
		array(2, str(), data()),
	}
	describeGroupsFields = []field{
		strs(), num(1).since(3),
	}
	listGroupsFields = []field{
		strs().since(4), strs().since(5),
	}
	deleteGroupsFields = []field{
		strs(),
	}
	offsetDeleteFields = []field{
		str(), array(2, str(), array(4, num(4))),
	}
	consumerGroupHeartbeatFields = []field{
		str(), str(), num(4), str().orNull(0), str().orNull(0), num(4), strs().orNull(0),
		str().since(1).orNull(1), str().orNull(0),
		array(17, num(16), nums(4)).orNull(0),
	}
	consumerGroupDescribeFields = []field{
		strs(), num(1),
	}
	addPartitionsToTxnFields = []field{
		str().until(3), num(8).until(3), num(2).until(3), array(2, str(), nums(4)).until(3),
		array(13, str(), num(8), num(2), num(1), array(2, str(), nums(4))).since(4),
	}
	addOffsetsToTxnFields = []field{
		str(), num(8), num(2), str(),
	}
	endTxnFields = []field{
		str(), num(8), num(2), num(1),
	}
	writeTxnMarkersFields = []field{
		array(16, num(8), num(2), num(1), array(2, str(), nums(4)), num(4), num(1).since(2)),
	}
	txnOffsetCommitFields = []field{
		str(), str(), num(8), num(2), num(4).since(3), str().since(3), str().since(3).orNull(3),
		array(2,
			str().until(5), num(16).since(6),
			array(14, num(4), num(8), num(4).since(2), str().orNull(0)),
		),
	}
	describeTransactionsFields = []field{
		strs(),
	}
	listTransactionsFields = []field{
		strs(), nums(8), num(8).since(1), str().since(2).orNull(2),
	}
)
