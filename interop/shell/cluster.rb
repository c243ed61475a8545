# Changes tables whose regions are on the servers of a cluster, and checks each change by its rows. With -n, so that
# the first error ends it.
def expect(what, is, should)
  raise "#{what}: #{is.inspect} instead of #{should.inspect}" unless is == should
end

def wait_for(what)
  120.times do
    return if yield
    sleep 0.5
  end
  raise "waited in vain for #{what}"
end

def name_of(table)
  Java::OrgApacheHadoopHbase::TableName.valueOf(table)
end

def fill(table, family, from, to)
  (from...to).each { |i| put table, format('%03d', i), "#{family}:q", "v#{i}" }
end

api = Java::OrgApacheHadoopHbaseClient::ConnectionFactory.createConnection.getAdmin

puts '== split and merge'
create 'ddl', {NAME => 'f', VERSIONS => 3}, SPLITS => ['100']
fill 'ddl', 'f', 0, 200
flush 'ddl'
split 'ddl', '150'
wait_for('the split') { api.getRegions(name_of('ddl')).size == 3 }
expect 'rows after the split', (count 'ddl'), 200
create 'ddl_merge', 'f', SPLITS => ['100']
fill 'ddl_merge', 'f', 50, 150
pair = api.getRegions(name_of('ddl_merge'))
merge_region pair[0].getEncodedName, pair[1].getEncodedName
wait_for('the merge') { api.getRegions(name_of('ddl_merge')).size == 1 }
expect 'rows after the merge', (count 'ddl_merge'), 100

puts '== snapshot, clone, restore'
snapshot 'ddl', 'ddl_snap'
fill 'ddl', 'f', 200, 220
expect 'rows after the snapshot', (count 'ddl'), 220
clone_snapshot 'ddl_snap', 'ddl_clone'
expect 'rows of the clone', (count 'ddl_clone'), 200
disable 'ddl'
restore_snapshot 'ddl_snap'
enable 'ddl'
expect 'rows after the restore', (count 'ddl'), 200

puts '== alter'
alter 'ddl', {NAME => 'g', BLOOMFILTER => 'ROWCOL'}
fill 'ddl', 'g', 300, 310
expect 'rows of two families', (count 'ddl'), 210
alter 'ddl', 'delete' => 'g'
expect 'rows without the family', (count 'ddl'), 200

puts '== compact and truncate'
major_compact 'ddl'
wait_for('the compaction') { api.getCompactionState(name_of('ddl')).to_s == 'NONE' }
expect 'rows after the compaction', (count 'ddl'), 200
truncate_preserve 'ddl'
expect 'rows after truncating', (count 'ddl'), 0
expect 'regions after truncating', api.getRegions(name_of('ddl')).size, 3
truncate 'ddl_clone'
expect 'regions after truncating without splits', api.getRegions(name_of('ddl_clone')).size, 1

puts '== servers'
api.getRegionServers.each do |server|
  wal_roll server.getServerName
  update_config server.getServerName
  compaction_switch false, server.getServerName
  compaction_switch true, server.getServerName
end
clear_block_cache 'ddl_merge'
expect 'rows from cold files', (count 'ddl_merge'), 100
status 'detailed'
get_slowlog_responses '*', {'LIMIT' => 1}

puts '== quotas and throttle'
set_quota TYPE => THROTTLE, USER => 'nobody', LIMIT => '1000req/sec'
disable_rpc_throttle
enable_rpc_throttle
set_quota TYPE => THROTTLE, USER => 'nobody', LIMIT => NONE

puts '== peers'
# Its root znode does not exist, so nothing is replicated.
port = @hbase.configuration.get('hbase.zookeeper.property.clientPort')
add_peer 'away', CLUSTER_KEY => "127.0.0.1:#{port}:/away", STATE => 'DISABLED'
expect 'peers', list_peers.size, 1
enable_peer 'away'
set_peer_bandwidth 'away', 1_000_000
disable_peer 'away'
remove_peer 'away'
expect 'peers', list_peers.size, 0

puts '== drop'
delete_snapshot 'ddl_snap'
%w[ddl ddl_merge ddl_clone].each do |table|
  disable table
  drop table
end
puts 'every command ran'
