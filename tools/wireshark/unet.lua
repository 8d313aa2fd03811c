-- unet.lua - shows U-Net's frames and the signals between NIs in Wireshark and tshark.
--
--   tshark -X lua_script:tools/wireshark/unet.lua -r out.pcapng          once
--   cp tools/wireshark/unet.lua ~/.local/lib/wireshark/plugins/          for good
--
-- unet/wire/frame.h and ni/service/signal_wire.h have the formats. Filters: unet.tag == 0x10002, unet.signal.type == 3, unet.crc.bad.
-- Written for Lua 5.2, as Wireshark 3 and 4.0 have it, and later ones.

local kEtherType = 0x88B5
local kUdpPort = 849
local kVersion = 0xA1
local kSignalVersion = 1
local kMessageMax = 65536
local kFragmentUnit = 64
local kHeader, kPutHeader, kSignalHeader = 24, 8, 32

local unet = Proto("unet", "U-Net")

local signal_types = {"resolve", "resolved", "connect", "received", "accepted", "rejected", "confirm", "close", "closed",
                      "keepalive", "alive", "goodbye"}
local error_codes = {"invalid_argument", "not_permitted", "quota_exceeded", "not_found", "already_exists", "refused", "timed_out",
                     "disconnected", "unavailable", "out_of_memory", "protocol", "system"}
local close_reasons = {"closed by peer", "peer died", "NI stopped", "wire lost"}

local f = {
  version = ProtoField.uint8("unet.version", "Version", base.HEX),
  flags = ProtoField.uint8("unet.flags", "Flags", base.HEX),
  put = ProtoField.bool("unet.flags.put", "Put", 8, nil, 0x01, "Deposit at an offset of the exposed region"),
  notify = ProtoField.bool("unet.flags.notify", "Notify", 8, nil, 0x02, "Tell the receiver when the whole put has arrived"),
  length = ProtoField.uint16("unet.length", "Length of this fragment", base.DEC),
  tag = ProtoField.uint32("unet.tag", "Tag", base.HEX),
  index = ProtoField.uint32("unet.tag.index", "Index", base.DEC, nil, 0x0000FFFF),
  generation = ProtoField.uint32("unet.tag.generation", "Generation", base.HEX, nil, 0xFFFF0000),
  message = ProtoField.uint32("unet.message", "Message number", base.DEC),
  offset = ProtoField.uint32("unet.offset", "Offset in the message", base.DEC),
  total = ProtoField.uint32("unet.total", "Length of the message", base.DEC),
  crc = ProtoField.uint32("unet.crc", "crc32c", base.HEX),
  region_offset = ProtoField.uint64("unet.region_offset", "Offset in the region", base.DEC),
  payload = ProtoField.bytes("unet.payload", "Payload"),

  signal_version = ProtoField.uint8("unet.signal.version", "Version", base.DEC),
  signal_type = ProtoField.uint8("unet.signal.type", "Type", base.DEC, signal_types),
  signal_length = ProtoField.uint16("unet.signal.length", "Length", base.DEC),
  lost_after = ProtoField.uint32("unet.signal.lost_after", "Lost after (ms of silence)", base.DEC),
  from_incarnation = ProtoField.uint64("unet.signal.from_incarnation", "Incarnation of the sender", base.HEX),
  to_incarnation = ProtoField.uint64("unet.signal.to_incarnation", "Incarnation of the receiver", base.HEX),
  number = ProtoField.uint64("unet.signal.number", "Number of the connect", base.DEC),
  host = ProtoField.string("unet.signal.host", "Host"),
  target = ProtoField.string("unet.signal.target", "Target"),
  connect_tag = ProtoField.uint32("unet.signal.tag", "Tag", base.HEX),
  peer_tag = ProtoField.uint32("unet.signal.connect_tag", "Tag of the connect", base.HEX),
  mtu = ProtoField.uint32("unet.signal.mtu", "MTU of the connecting port", base.DEC),
  pid = ProtoField.uint32("unet.signal.pid", "Process", base.DEC),
  code = ProtoField.uint32("unet.signal.code", "Error", base.DEC, error_codes),
  text = ProtoField.string("unet.signal.text", "Text"),
  to_tag = ProtoField.uint32("unet.signal.to_tag", "Tag of the receiver", base.HEX),
  from_tag = ProtoField.uint32("unet.signal.from_tag", "Tag of the sender", base.HEX),
  reason = ProtoField.uint32("unet.signal.reason", "Reason", base.DEC, close_reasons),
  count = ProtoField.uint32("unet.signal.count", "Channels", base.DEC),
}
unet.fields = f

local e = {
  crc = ProtoExpert.new("unet.crc.bad", "The crc is wrong: damaged on the way", expert.group.CHECKSUM, expert.severity.ERROR),
  malformed = ProtoExpert.new("unet.bad", "The engine drops this frame", expert.group.MALFORMED, expert.severity.ERROR),
  cut = ProtoExpert.new("unet.cut", "Captured in part (snap length): the crc was not checked", expert.group.UNDECODED, expert.severity.NOTE),
}
unet.experts = e

-- bit32 up to Lua 5.2 (and in Wireshark's own 5.2); operators of Lua 5.3 would not even compile there.
local bits = bit32 or bit

local crc_table = {}
for n = 0, 255 do
  local crc = n
  for _ = 1, 8 do
    local shifted = bits.rshift(crc, 1)
    crc = bits.band(crc, 1) == 1 and bits.bxor(shifted, 0x82F63B78) or shifted
  end
  crc_table[n] = crc
end

local function crc32c(crc, bytes)
  for i = 0, bytes:len() - 1 do
    crc = bits.bxor(bits.rshift(crc, 8), crc_table[bits.band(bits.bxor(crc, bytes:get_index(i)), 0xFF)])
  end
  return crc
end

-- The header without its crc field, then all that follows it.
local function frame_crc(buffer, rest)
  local crc = crc32c(0xFFFFFFFF, buffer(0, 20):bytes())
  if rest > 0 then crc = crc32c(crc, buffer(kHeader, rest):bytes()) end
  crc = bits.bxor(crc, 0xFFFFFFFF)
  return crc < 0 and crc + 0x100000000 or crc
end

-- A length byte, then room for `most` characters. Returns the text.
local function add_text(tree, field, buffer, at, most)
  local length = math.min(buffer(at, 1):uint(), most)
  local text = length > 0 and buffer(at + 1, length):string() or ""
  tree:add(field, buffer(at, 1 + most), text)
  return text
end

local function hex(value) return string.format("0x%x", value) end

-- By type: bytes of the body, and what to show; each returns the rest of the line for the packet list.
local bodies = {
  {64, function(tree, b) return " who is " .. add_text(tree, f.host, b, 0, 63) .. "?" end},
  {64, function(tree, b) return " I am " .. add_text(tree, f.host, b, 0, 63) end},
  {140, function(tree, b)
    tree:add(f.connect_tag, b(0, 4))
    tree:add(f.mtu, b(4, 4))
    tree:add(f.pid, b(8, 4))
    local target = add_text(tree, f.target, b, 12, 63)
    local host = add_text(tree, f.host, b, 76, 63)
    return string.format(" %s from %s, tag %s", target, host, hex(b(0, 4):uint()))
  end},
  {0},
  {8, function(tree, b)
    tree:add(f.connect_tag, b(0, 4))
    tree:add(f.peer_tag, b(4, 4))
    return " tag " .. hex(b(0, 4):uint()) .. " for " .. hex(b(4, 4):uint())
  end},
  {260, function(tree, b)
    tree:add(f.code, b(0, 4))
    return " " .. add_text(tree, f.text, b, 4, 255)
  end},
  {0},
  {12, function(tree, b)
    tree:add(f.to_tag, b(0, 4))
    tree:add(f.from_tag, b(4, 4))
    tree:add(f.reason, b(8, 4))
    return " tag " .. hex(b(0, 4):uint()) .. ": " .. (close_reasons[b(8, 4):uint()] or "?")
  end},
  {8, function(tree, b)
    tree:add(f.to_tag, b(0, 4))
    tree:add(f.from_tag, b(4, 4))
    return " tag " .. hex(b(0, 4):uint())
  end},
  {324, function(tree, b)
    tree:add(f.count, b(0, 4))
    local count = math.min(b(0, 4):uint(), 40)
    for i = 0, count - 1 do
      tree:add(f.from_tag, b(4 + 8 * i, 4))
      tree:add(f.to_tag, b(8 + 8 * i, 4))
    end
    return " " .. count .. " channels"
  end},
  {0},
  {0},
}

local function dissect_signal(buffer, info, tree)
  local branch = tree:add(unet, buffer, "Signal")
  if buffer:len() < kSignalHeader then
    branch:add_proto_expert_info(e.malformed, "A signal that is too short")
    return "signal, too short"
  end
  branch:add(f.signal_version, buffer(0, 1))
  branch:add(f.signal_type, buffer(1, 1))
  branch:add(f.signal_length, buffer(2, 2))
  branch:add(f.lost_after, buffer(4, 4))
  branch:add(f.from_incarnation, buffer(8, 8))
  branch:add(f.to_incarnation, buffer(16, 8))
  branch:add(f.number, buffer(24, 8))
  local type = buffer(1, 1):uint()
  local name, body = signal_types[type], bodies[type]
  if body == nil or buffer(0, 1):uint() ~= kSignalVersion or buffer(2, 2):uint() ~= buffer:len() or
     buffer:len() ~= kSignalHeader + body[1] then
    branch:add_proto_expert_info(e.malformed, "A signal of another version, type or length")
    return "signal " .. (name or type) .. ", malformed"
  end
  branch:append_text(": " .. name)
  if body[1] == 0 then return name end
  return name .. body[2](branch, buffer(kSignalHeader, body[1]):tvb())
end

function unet.dissector(buffer, info, tree)
  info.cols.protocol = "U-Net"
  local branch = tree:add(unet, buffer)
  if buffer:len() < kHeader then
    branch:add_proto_expert_info(e.malformed, "Too short for a header")
    return
  end
  branch:add(f.version, buffer(0, 1))
  local flags = buffer(1, 1):uint()
  local flag_branch = branch:add(f.flags, buffer(1, 1))
  flag_branch:add(f.put, buffer(1, 1))
  flag_branch:add(f.notify, buffer(1, 1))
  branch:add(f.length, buffer(2, 2))
  local tag_branch = branch:add(f.tag, buffer(4, 4))
  tag_branch:add(f.index, buffer(4, 4))
  tag_branch:add(f.generation, buffer(4, 4))
  branch:add(f.message, buffer(8, 4))
  branch:add(f.offset, buffer(12, 4))
  branch:add(f.total, buffer(16, 4))
  local crc_item = branch:add(f.crc, buffer(20, 4))

  local length, tag = buffer(2, 2):uint(), buffer(4, 4):uint()
  local offset, total = buffer(12, 4):uint(), buffer(16, 4):uint()
  local is_put = bits.band(flags, 1) == 1
  local start = kHeader + (is_put and kPutHeader or 0)
  local last = offset + length == total
  if buffer(0, 1):uint() ~= kVersion then
    branch:add_proto_expert_info(e.malformed, "Not our version")
    return
  end
  if flags > 3 or flags == 2 then branch:add_proto_expert_info(e.malformed, "Unknown flags") end
  if total > kMessageMax or offset % kFragmentUnit ~= 0 or offset + length > total or (not last and length % kFragmentUnit ~= 0) or
     (length == 0 and total ~= 0) then
    branch:add_proto_expert_info(e.malformed, "A fragment that can be part of no message")
  end
  if buffer:len() < start + length then
    if buffer:len() < buffer:reported_len() then
      branch:add_proto_expert_info(e.cut)
    else
      branch:add_proto_expert_info(e.malformed, "Ends before its payload")
    end
    return
  end
  if frame_crc(buffer, start - kHeader + length) ~= buffer(20, 4):uint() then crc_item:add_proto_expert_info(e.crc) end

  local what
  if is_put then branch:add(f.region_offset, buffer(kHeader, kPutHeader)) end
  if tag == 0 and flags == 0 and offset == 0 and last then
    what = dissect_signal(buffer(start, length):tvb(), info, tree)
  else
    if length > 0 then branch:add(f.payload, buffer(start, length)) end
    what = string.format("%s %u on tag 0x%08x, %u bytes", is_put and "put" or "message", buffer(8, 4):uint(), tag, total)
    if length < total then what = what .. string.format(", from %u: %u", offset, length) end
    if is_put then what = what .. " to region offset " .. tostring(buffer(kHeader, kPutHeader):uint64()) end
  end
  branch:append_text(", " .. what)
  info.cols.info = what
end

DissectorTable.get("ethertype"):add(kEtherType, unet)
DissectorTable.get("udp.port"):add(kUdpPort, unet)  -- another port: Decode As
